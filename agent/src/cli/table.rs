//! Tables that line up, as kubectl's: upper-case heads, three spaces between columns.

/// Rows of one width.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these heads.
    #[must_use]
    pub fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// True when only the heads are there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }

    /// The text, one line a row, no blanks at line ends.
    #[must_use]
    pub fn text(&self) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                let width = cell.chars().count();
                match widths.get_mut(column) {
                    Some(known) => *known = (*known).max(width),
                    None => widths.push(width),
                }
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                let fill = width.saturating_sub(cell.chars().count()) + 3;
                line.extend(std::iter::repeat_n(' ', fill));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// An age as kubectl writes it: `45s`, `3m12s`, `2h`, `5d`.
#[must_use]
pub fn age(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..7200 => format!("{minutes}m"),
        7200..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        7200..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        _ => format!("{days}d"),
    }
}

/// A size with a binary unit: `812 B`, `4.1 MiB`.
#[must_use]
pub fn size(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut whole, mut tenth, mut unit) = (bytes, 0, 0);
    while whole >= 1024 && unit + 1 < units.len() {
        tenth = (whole % 1024) * 10 / 1024;
        whole /= 1024;
        unit += 1;
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{whole} {name}") } else { format!("{whole}.{tenth} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_blank_end() {
        let mut table = Table::new(&["NAME", "READY"]);
        table.row(vec!["a-long-name".into(), "1/1".into()]);
        table.row(vec!["b".into(), String::new()]);
        assert_eq!(table.text(), "NAME          READY\na-long-name   1/1\nb\n");
    }

    #[test]
    fn ages_are_kubectls() {
        let seen: Vec<String> = [5, 119, 120, 192, 600, 7200, 7260, 90_000, 172_800, 180_000, 864_000]
            .into_iter()
            .map(age)
            .collect();
        assert_eq!(seen, ["5s", "119s", "2m", "3m12s", "10m", "2h", "2h1m", "25h", "2d", "2d2h", "10d"]);
    }

    #[test]
    fn sizes_have_one_decimal() {
        assert_eq!([size(812), size(4_300_000), size(1 << 30)], ["812 B", "4.1 MiB", "1.0 GiB"]);
    }
}
