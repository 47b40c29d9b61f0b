//! YAML text to nodes, over the events of `saphyr-parser`: depth and size are bounded while parsing, aliases are
//! copied within a budget, `<<` is merged with local keys winning.

use std::borrow::Cow;
use std::collections::BTreeSet;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::node::{
    Entry, MAX_ALIAS_TEXT, MAX_DEPTH, MAX_NODES, Node, Position, Shown, SyntaxError, Value, duplicate_error,
};

/// The documents of a text, those that hold nothing included (as null nodes).
pub fn parse(text: &str) -> Result<Vec<Node<'_>>, SyntaxError> {
    read(text, Tree::default()).map(|tree| tree.documents)
}

/// The same, but of a key that stands twice the last one counts, and the complaint is handed out.
pub fn parse_lenient(text: &str) -> Result<(Vec<Node<'_>>, Vec<SyntaxError>), SyntaxError> {
    let tree = read(text, Tree { duplicates: Some(Vec::new()), ..Tree::default() })?;
    Ok((tree.documents, tree.duplicates.unwrap_or_default()))
}

fn read<'a>(text: &'a str, mut tree: Tree<'a>) -> Result<Tree<'a>, SyntaxError> {
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|e| scan_error(text, &e))?;
        tree.take(event, position(&span.start))?;
    }
    Ok(tree)
}

fn position(mark: &Marker) -> Position {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Position { line: number(mark.line()), column: number(mark.col()).saturating_add(1) }
}

/// Says "tab" with the place of the tab where one is used as indentation near the place the parser stopped at: parsers
/// report what the tab led to, not the tab.
fn scan_error(text: &str, error: &ScanError) -> SyntaxError {
    let at = position(error.marker());
    let blames_tab = error.info().contains("tab");
    let near = |line: u32| -> Option<Position> {
        let index = usize::try_from(line.checked_sub(1)?).ok()?;
        let content = text.lines().nth(index)?;
        let indent = content.find(|c: char| !c.is_whitespace())?;
        let tab = content.get(..indent)?.find('\t')?;
        // behind spaces it may be the text of a block scalar
        let found = blames_tab || tab == 0;
        found.then(|| Position { line, column: u32::try_from(tab).unwrap_or(u32::MAX).saturating_add(1) })
    };
    let lines = [at.line, at.line.saturating_sub(1), at.line.saturating_add(1)];
    if let Some(tab) = lines.into_iter().find_map(near) {
        return SyntaxError::new(tab, "a tab is used for indentation").hint("indent with spaces");
    }
    SyntaxError::new(at, error.info().to_string())
}

#[derive(Default)]
struct Tree<'a> {
    documents: Vec<Node<'a>>,
    open: Vec<Open<'a>>,
    /// finished nodes by anchor number, with what a copy costs
    anchors: Vec<Option<Anchored<'a>>>,
    nodes: usize,
    alias_text: usize,
    /// where complaints about doubled keys go when they are no errors
    duplicates: Option<Vec<SyntaxError>>,
}

struct Anchored<'a> {
    node: Node<'a>,
    nodes: usize,
    text: usize,
}

/// A sequence or mapping whose end has not come.
struct Open<'a> {
    at: Position,
    anchor: usize,
    content: Content<'a>,
}

enum Content<'a> {
    Seq(Vec<Node<'a>>),
    Map { entries: Vec<Entry<'a>>, key: Option<Key<'a>>, merge: Option<Node<'a>> },
}

struct Key<'a> {
    text: Cow<'a, str>,
    at: Position,
    merge: bool,
}

impl<'a> Tree<'a> {
    fn take(&mut self, event: Event<'a>, at: Position) -> Result<(), SyntaxError> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(at, 1)?;
                if self.expects_key() {
                    let merge = style == ScalarStyle::Plain && text == "<<";
                    return self.set_key(Key { text, at, merge }, anchor);
                }
                let value = scalar(text, style, tag.as_deref(), at)?;
                self.finish(Node { at, value }, anchor)
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", at)?;
                self.open(at, anchor, Content::Seq(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", at)?;
                self.open(at, anchor, Content::Map { entries: Vec::new(), key: None, merge: None })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(at),
            Event::Alias(anchor) => self.alias(anchor, at),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn count(&mut self, at: Position, nodes: usize) -> Result<(), SyntaxError> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err(SyntaxError::new(at, format!("more than {MAX_NODES} values in one file"))
                .hint("split the file; aliases count with all they copy"));
        }
        Ok(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { content: Content::Map { key: None, .. }, .. }))
    }

    fn set_key(&mut self, new: Key<'a>, anchor: usize) -> Result<(), SyntaxError> {
        if anchor > 0 {
            let node = Node { at: new.at, value: Value::Text(new.text.clone()) };
            self.remember(anchor, &node)?;
        }
        if let Some(Open { content: Content::Map { key, .. }, .. }) = self.open.last_mut() {
            *key = Some(new);
        }
        Ok(())
    }

    fn open(&mut self, at: Position, anchor: usize, content: Content<'a>) -> Result<(), SyntaxError> {
        self.count(at, 1)?;
        if self.open.len() >= MAX_DEPTH {
            return Err(SyntaxError::new(at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        if self.expects_key() {
            return Err(SyntaxError::new(at, "a list or mapping stands where a key is expected"));
        }
        self.open.push(Open { at, anchor, content });
        Ok(())
    }

    fn close(&mut self, end: Position) -> Result<(), SyntaxError> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let value = match open.content {
            Content::Seq(items) => Value::Seq(items),
            Content::Map { mut entries, merge, .. } => {
                if let Some(error) = duplicate_error(&entries) {
                    match &mut self.duplicates {
                        Some(found) => found.push(error),
                        None => return Err(error),
                    }
                    keep_last(&mut entries);
                }
                if let Some(merge) = merge {
                    self.merge(&mut entries, &merge, end)?;
                }
                Value::Map(entries)
            }
        };
        self.finish(Node { at: open.at, value }, open.anchor)
    }

    /// Puts a finished node where it belongs.
    fn finish(&mut self, node: Node<'a>, anchor: usize) -> Result<(), SyntaxError> {
        if anchor > 0 {
            self.remember(anchor, &node)?;
        }
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.documents.push(node),
            Some(Content::Seq(items)) => items.push(node),
            Some(Content::Map { entries, key, merge }) => match key.take() {
                Some(Key { merge: true, at, .. }) => {
                    if merge.replace(node).is_some() {
                        return Err(SyntaxError::new(at, "key '<<' stands twice in one mapping")
                            .hint("merge several with a list: <<: [*a, *b]"));
                    }
                }
                Some(Key { text, at, merge: false }) => {
                    entries.push(Entry { key: text, at, value: node });
                }
                // an alias as key comes this way
                None => match node.value {
                    Value::Plain(text) | Value::Text(text) => {
                        *key = Some(Key { text, at: node.at, merge: false });
                    }
                    Value::Seq(_) | Value::Map(_) => {
                        return Err(SyntaxError::new(
                            node.at,
                            "a list or mapping stands where a key is expected",
                        ));
                    }
                },
            },
        }
        Ok(())
    }

    fn remember(&mut self, anchor: usize, node: &Node<'a>) -> Result<(), SyntaxError> {
        let (nodes, text) = weight(node);
        self.count(node.at, nodes)?;
        if self.anchors.len() <= anchor {
            // numbers are given in order, so this grows by the number of anchors written
            if anchor > MAX_NODES {
                return Err(SyntaxError::new(node.at, "too many anchors"));
            }
            self.anchors.resize_with(anchor.saturating_add(1), || None);
        }
        if let Some(slot) = self.anchors.get_mut(anchor) {
            *slot = Some(Anchored { node: node.clone(), nodes, text });
        }
        self.copied(node.at, text)
    }

    fn copied(&mut self, at: Position, text: usize) -> Result<(), SyntaxError> {
        self.alias_text = self.alias_text.saturating_add(text);
        if self.alias_text > MAX_ALIAS_TEXT {
            return Err(SyntaxError::new(at, "anchors and aliases copy more than 1 MiB of text"));
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), SyntaxError> {
        let Some(Some(found)) = self.anchors.get(anchor) else {
            return Err(SyntaxError::new(at, "an alias stands inside the value it names"));
        };
        let (nodes, text) = (found.nodes, found.text);
        // the budget is asked before the copy is made
        self.count(at, nodes)?;
        self.copied(at, text)?;
        let Some(Some(found)) = self.anchors.get(anchor) else { return Ok(()) };
        let node = found.node.clone();
        if self.open.len().saturating_add(depth(&node)) > MAX_DEPTH {
            return Err(SyntaxError::new(at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.finish(node, 0)
    }

    /// Adds the entries of `<<` that the mapping does not have itself.
    fn merge(
        &mut self,
        entries: &mut Vec<Entry<'a>>,
        from: &Node<'a>,
        end: Position,
    ) -> Result<(), SyntaxError> {
        let sources: &[Node<'a>] = match &from.value {
            Value::Map(_) => core::slice::from_ref(from),
            Value::Seq(items) => items,
            Value::Plain(_) | Value::Text(_) => &[],
        };
        let is_map = |node: &Node<'_>| matches!(node.value, Value::Map(_));
        if sources.is_empty() || !sources.iter().all(is_map) {
            return Err(SyntaxError::new(
                from.at,
                format!("'<<' needs a mapping or a list of them, found {}", from.describe(false)),
            ));
        }
        let mut known: BTreeSet<Cow<'a, str>> = entries.iter().map(|entry| entry.key.clone()).collect();
        for source in sources {
            let Value::Map(inherited) = &source.value else { continue };
            for entry in inherited {
                if known.insert(entry.key.clone()) {
                    let (nodes, text) = weight(&entry.value);
                    self.count(end, nodes)?;
                    self.copied(end, text)?;
                    entries.push(entry.clone());
                }
            }
        }
        Ok(())
    }
}

/// Leaves of each key the last one.
fn keep_last(entries: &mut Vec<Entry<'_>>) {
    let mut seen = BTreeSet::new();
    entries.reverse();
    entries.retain(|entry| seen.insert(entry.key.clone()));
    entries.reverse();
}

/// How many nodes, and how many bytes of text, a copy has.
fn weight(node: &Node<'_>) -> (usize, usize) {
    match &node.value {
        Value::Plain(text) | Value::Text(text) => (1, text.len()),
        Value::Seq(items) => items.iter().fold((1, 0), |sum, item| add(sum, weight(item))),
        Value::Map(entries) => entries
            .iter()
            .fold((1, 0), |sum, entry| add(add(sum, (1, entry.key.len())), weight(&entry.value))),
    }
}

fn add(a: (usize, usize), b: (usize, usize)) -> (usize, usize) {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

fn depth(node: &Node<'_>) -> usize {
    let inner = match &node.value {
        Value::Plain(_) | Value::Text(_) => return 0,
        Value::Seq(items) => items.iter().map(depth).max(),
        Value::Map(entries) => entries.iter().map(|entry| depth(&entry.value)).max(),
    };
    inner.unwrap_or(0).saturating_add(1)
}

fn scalar<'a>(
    text: Cow<'a, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    at: Position,
) -> Result<Value<'a>, SyntaxError> {
    let plain = style == ScalarStyle::Plain;
    let Some(tag) = tag else {
        return Ok(if plain { Value::Plain(text) } else { Value::Text(text) });
    };
    let core = tag.is_yaml_core_schema();
    match tag.suffix.as_str() {
        "str" if core => Ok(Value::Text(text)),
        "int" | "float" | "bool" | "null" if core => Ok(Value::Plain(text)),
        "!" if tag.handle.is_empty() => Ok(Value::Text(text)),
        _ => Err(unknown_tag(tag, at)),
    }
}

fn check_tag(tag: Option<&Tag>, expected: &str, at: Position) -> Result<(), SyntaxError> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == expected) => Err(unknown_tag(tag, at)),
        Some(_) | None => Ok(()),
    }
}

fn unknown_tag(tag: &Tag, at: Position) -> SyntaxError {
    SyntaxError::new(at, format!("tag {} does not fit here", Shown(&tag.to_string())))
        .hint("remove the tag; quote the value if it is text")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn one(text: &str) -> Node<'_> {
        let mut documents = parse(text).unwrap();
        assert_eq!(documents.len(), 1, "{text}");
        documents.remove(0)
    }

    #[test]
    fn nodes_know_line_and_column() {
        let node = one("a: 1\nb:\n  - x\n  - {c: \"d\"}\n");
        assert_eq!(node.locate("a"), Position { line: 1, column: 1 });
        assert_eq!(node.locate("b[1]"), Position { line: 4, column: 5 });
        assert_eq!(node.locate("b[1].c"), Position { line: 4, column: 6 });
        assert_eq!(node.locate("b[1].missing"), Position { line: 4, column: 5 });
        assert_eq!(node.get("b").unwrap().at, Position { line: 3, column: 3 });
    }

    #[test]
    fn tab_indentation_is_named_at_its_place() {
        for text in ["a:\n\tb: 1\n", "a:\n  b: 1\n \t c: 2\n", "a:\n\t- x\n", "a:\n- b: 1\n\tc: 2\n"] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains("tab"), "{text:?}: {error:?}");
            let line = text.lines().nth(error.at.line as usize - 1).unwrap();
            assert_eq!(line.as_bytes()[error.at.column as usize - 1], b'\t', "{text:?}: {error:?}");
        }
    }

    #[test]
    fn duplicate_key_names_both_lines() {
        let error = parse("a:\n  k: 1\n  l: 2\n  k: 3\n").unwrap_err();
        assert_eq!(error.at, Position { line: 4, column: 3 });
        assert!(error.message.contains("line 2") && error.message.contains("line 4"), "{}", error.message);
    }

    #[test]
    fn merge_local_keys_win_whatever_the_order() {
        for text in [
            "b: &b {x: 1, y: 2}\nc: {<<: *b, y: 3}\n",
            "b: &b {x: 1, y: 2}\nc: {y: 3, <<: *b}\n",
            "b: &b {x: 1, y: 2}\nc: {y: 3, <<: [*b, {x: 9, z: 1}]}\n",
        ] {
            let node = one(text);
            let c = node.get("c").unwrap();
            assert_eq!(c.get("x").unwrap().text(), Some("1"), "{text}");
            assert_eq!(c.get("y").unwrap().text(), Some("3"), "{text}");
            assert!(c.get("<<").is_none());
        }
        assert!(parse("c: {<<: 1}").unwrap_err().message.contains("<<"));
        // a quoted << is a key like any other
        assert_eq!(one("\"<<\": 1").get("<<").unwrap().text(), Some("1"));
    }

    #[test]
    fn carriage_returns_leave_the_text() {
        let node = one("a: b\r\nc: |\r\n  x\r\n  y\r\nd: 'p\r\n  q'\r\n");
        assert_eq!(node.get("a").unwrap().text(), Some("b"));
        assert_eq!(node.get("c").unwrap().text(), Some("x\ny\n"));
        assert_eq!(node.get("d").unwrap().text(), Some("p q"));
    }

    #[test]
    fn bombs_are_refused_early() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            let alias = format!("*a{}", i - 1);
            bomb += &format!("a{i}: &a{i} [{}]\n", [alias.as_str(); 9].join(","));
        }
        let fat = format!("a: &a '{}'\nb: [{}]\n", "x".repeat(100_000), ["*a"; 10_000].join(","));
        let nested = "[".repeat(20_000);
        let keyed = format!("a: {}", "{b: ".repeat(20_000));
        let dashes = "- ".repeat(20_000);
        let questions = "? ".repeat(20_000);
        let spread = "[\n".repeat(20_000);
        let own = "a: &a [*a]".to_string();
        for text in [bomb, fat, nested, keyed, dashes, questions, spread, own] {
            let start = Instant::now();
            assert!(parse(&text).is_err());
            assert!(start.elapsed() < Duration::from_millis(500), "{:?} {:.20}", start.elapsed(), text);
        }
    }

    #[test]
    fn documents_empty_ones_included() {
        assert_eq!(parse("").unwrap().len(), 0);
        assert_eq!(parse("# c\n").unwrap().len(), 0);
        let documents = parse("---\n---\n# x\n---\na: 1\n---\n---\n").unwrap();
        assert_eq!(documents.iter().filter(|d| !d.is_null()).count(), 1);
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2000))]
        #[test]
        fn any_text_is_read_or_refused_in_bounded_time(
            text in "([-?:,\\[\\]{}#&*!|>'\"%@` \n\t<~ab.0-9\\\\]|---|\\.\\.\\.|\r\n|<<: |&a |\\*a|: |- |\\? |!!str |%YAML |%TAG |\u{feff}|\u{85}|\u{2028}|é){0,60}"
        ) {
            let start = Instant::now();
            std::hint::black_box(parse(&text).is_ok());
            proptest::prop_assert!(start.elapsed() < Duration::from_secs(1));
        }
    }

    #[test]
    fn tags_of_the_core_are_obeyed() {
        let node = one("a: !!str 12\nb: !!int 0x10\nc: ! 5\n");
        assert_eq!(node.get("a").unwrap().value, Value::Text("12".into()));
        assert_eq!(node.get("b").unwrap().value, Value::Plain("0x10".into()));
        assert!(parse("a: !foo x").is_err());
    }
}
