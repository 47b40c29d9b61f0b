//! "did you mean": the nearest of some known names.

/// The known name nearest to `word`, if it is near enough to be a slip: up to a third of the letters.
pub fn nearest<'n>(word: &str, names: &[&'n str]) -> Option<&'n str> {
    // longer words are not slips of field names
    if word.len() > 64 {
        return None;
    }
    names
        .iter()
        .map(|name| (score(word, name), *name))
        .filter(|(score, name)| *score <= (word.len().max(name.len()) / 3).max(1))
        .min_by_key(|(score, _)| *score)
        .map(|(_, name)| name)
}

/// The edit distance, or 1 where the word is the start of the name or the end of it without its first word
/// ("cpus" for "reservedSystemCPUs" is none, "reservedCpus" is found by its parts).
fn score(word: &str, name: &str) -> usize {
    let (word, name) = (word.to_ascii_lowercase(), name.to_ascii_lowercase());
    let edits = distance(word.as_bytes(), name.as_bytes());
    edits.min(gap(word.as_bytes(), name.as_bytes()).unwrap_or(usize::MAX))
}

/// 2 where the name is the word with one piece put in (`reservedCpus` → `reservedSystemCPUs`), the word being at
/// least half of it.
fn gap(word: &[u8], name: &[u8]) -> Option<usize> {
    if word.len() >= name.len() || word.len().saturating_mul(2) < name.len() || word.len() < 6 {
        return None;
    }
    let front = word.iter().zip(name).take_while(|(a, b)| a == b).count();
    let back = word.iter().rev().zip(name.iter().rev()).take_while(|(a, b)| a == b).count();
    (front.saturating_add(back) >= word.len() && front >= 3).then_some(2)
}

/// Optimal string alignment: insertions, deletions, replacements and swaps of neighbours.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let at = |row: &[usize], j: usize| row.get(j).copied().unwrap_or(usize::MAX / 2);
            let mut best =
                (at(&last, j) + usize::from(x != y)).min(at(&last, j + 1) + 1).min(at(&row, j) + 1);
            let swapped = i > 0 && j > 0 && a.get(i - 1) == Some(y) && b.get(j - 1) == Some(x);
            if swapped {
                best = best.min(at(&before, j - 1) + 1);
            }
            row.push(best);
        }
        before = last;
        last = row;
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_finds_slips_and_nothing_else() {
        let names = ["image", "imagePullPolicy", "command", "args", "reservedSystemCPUs", "ports", "env"];
        for (word, name) in [
            ("imagee", Some("image")),
            ("imgae", Some("image")),
            ("Image", Some("image")),
            ("arg", Some("args")),
            ("comand", Some("command")),
            ("reservedCpus", Some("reservedSystemCPUs")),
            ("imagePullPolcy", Some("imagePullPolicy")),
            ("x-defaults", None),
            ("zzz", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &names), name, "{word}");
        }
    }

    #[test]
    fn distance_counts_edits() {
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b"abc"), 0);
        assert_eq!(distance(b"abc", b"acb"), 1);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }
}
