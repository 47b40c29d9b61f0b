//! JSON text to nodes (RFC 8259, strictly): the readers we keep give no position for each value.

use std::borrow::Cow;

use super::node::{Entry, MAX_DEPTH, MAX_NODES, Node, Position, SyntaxError, Value, duplicate_error};

/// The one value of a text.
pub fn parse(text: &str) -> Result<Node<'_>, SyntaxError> {
    let mut reader = Reader { text, offset: 0, line: 1, line_start: 0, nodes: 0 };
    reader.space();
    let node = reader.value(0)?;
    reader.space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.error("text follows the end of the JSON value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    offset: usize,
    line: u32,
    /// offset of the first byte of this line
    line_start: usize,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or("")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn at(&self) -> Position {
        let before = self.text.get(self.line_start..self.offset).unwrap_or("");
        let column = u32::try_from(before.chars().count()).unwrap_or(u32::MAX).saturating_add(1);
        Position { line: self.line, column }
    }

    fn error(&self, message: impl Into<String>) -> SyntaxError {
        SyntaxError::new(self.at(), message)
            .hint("a text that starts with '{' or '[' is read as JSON; YAML flow style must not come first")
    }

    /// Steps over bytes of which none ends a line.
    fn skip(&mut self, bytes: usize) {
        self.offset = self.offset.saturating_add(bytes);
    }

    fn space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' => self.skip(1),
                b'\n' => {
                    self.skip(1);
                    self.line = self.line.saturating_add(1);
                    self.line_start = self.offset;
                }
                _ => break,
            }
        }
    }

    fn expect(&mut self, byte: u8, what: &str) -> Result<(), SyntaxError> {
        if self.peek() != Some(byte) {
            return Err(self.unexpected(what));
        }
        self.skip(1);
        Ok(())
    }

    fn unexpected(&self, allowed: &str) -> SyntaxError {
        match self.rest().chars().next() {
            Some(c) => self.error(format!("expected {allowed}, found '{}'", c.escape_default())),
            None => self.error(format!("expected {allowed}, found the end of the text")),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, SyntaxError> {
        let at = self.at();
        self.nodes = self.nodes.saturating_add(1);
        if self.nodes > MAX_NODES {
            return Err(
                SyntaxError::new(at, format!("more than {MAX_NODES} values in one file")).hint("split it")
            );
        }
        if depth >= MAX_DEPTH {
            return Err(SyntaxError::new(at, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let value = match self.peek() {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.array(depth)?,
            Some(b'"') => Value::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => Value::Plain(Cow::Borrowed(self.number()?)),
            _ => Value::Plain(Cow::Borrowed(self.word()?)),
        };
        Ok(Node { at, value })
    }

    fn object(&mut self, depth: usize) -> Result<Value<'a>, SyntaxError> {
        self.skip(1);
        let mut entries: Vec<Entry<'a>> = Vec::new();
        self.space();
        if self.peek() == Some(b'}') {
            self.skip(1);
            return Ok(Value::Map(entries));
        }
        loop {
            self.space();
            let at = self.at();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a key in double quotes"));
            }
            let key = self.string()?;
            self.space();
            self.expect(b':', "':'")?;
            self.space();
            let value = self.value(depth.saturating_add(1))?;
            entries.push(Entry { key, at, value });
            self.space();
            match self.peek() {
                Some(b',') => self.skip(1),
                Some(b'}') => break self.skip(1),
                _ => return Err(self.unexpected("',' or '}'")),
            }
        }
        match duplicate_error(&entries) {
            Some(error) => Err(error),
            None => Ok(Value::Map(entries)),
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value<'a>, SyntaxError> {
        self.skip(1);
        let mut items = Vec::new();
        self.space();
        if self.peek() == Some(b']') {
            self.skip(1);
            return Ok(Value::Seq(items));
        }
        loop {
            self.space();
            items.push(self.value(depth.saturating_add(1))?);
            self.space();
            match self.peek() {
                Some(b',') => self.skip(1),
                Some(b']') => break self.skip(1),
                _ => return Err(self.unexpected("',' or ']'")),
            }
        }
        Ok(Value::Seq(items))
    }

    fn word(&mut self) -> Result<&'a str, SyntaxError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        match rest.get(..end) {
            Some(word @ ("true" | "false" | "null")) => {
                self.skip(end);
                Ok(word)
            }
            _ => Err(self.unexpected("a JSON value")),
        }
    }

    fn number(&mut self) -> Result<&'a str, SyntaxError> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let digits = |from: usize| {
            bytes.get(from..).map_or(0, |tail| tail.iter().take_while(|b| b.is_ascii_digit()).count())
        };
        let mut end = usize::from(bytes.first() == Some(&b'-'));
        let whole = digits(end);
        if whole == 0 || (whole > 1 && bytes.get(end) == Some(&b'0')) {
            return Err(self.error("a JSON number has no leading zero and at least one digit"));
        }
        end = end.saturating_add(whole);
        if bytes.get(end) == Some(&b'.') {
            let fraction = digits(end.saturating_add(1));
            if fraction == 0 {
                return Err(self.error("a JSON number needs a digit after the point"));
            }
            end = end.saturating_add(fraction).saturating_add(1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            end = end.saturating_add(1);
            if matches!(bytes.get(end), Some(b'+' | b'-')) {
                end = end.saturating_add(1);
            }
            let exponent = digits(end);
            if exponent == 0 {
                return Err(self.error("a JSON number needs a digit in its exponent"));
            }
            end = end.saturating_add(exponent);
        }
        self.skip(end);
        Ok(rest.get(..end).unwrap_or(""))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, SyntaxError> {
        self.skip(1);
        let start = self.offset;
        let mut owned: Option<String> = None;
        loop {
            let rest = self.rest();
            let special = rest.find(|c: char| matches!(c, '"' | '\\') || u32::from(c) < 0x20);
            let Some(special) = special else {
                return Err(self.error("a string has no closing quote"));
            };
            if let (Some(owned), Some(piece)) = (owned.as_mut(), rest.get(..special)) {
                owned.push_str(piece);
            }
            self.skip(special);
            match self.peek() {
                Some(b'"') => {
                    let borrowed = self.text.get(start..self.offset).unwrap_or("");
                    self.skip(1);
                    return Ok(owned.map_or(Cow::Borrowed(borrowed), Cow::Owned));
                }
                Some(b'\\') => {
                    let before = self.text.get(start..self.offset).unwrap_or("");
                    let text = owned.get_or_insert_with(|| before.to_string());
                    let c = self.escape()?;
                    text.push(c);
                }
                _ => return Err(self.error("a control character in a string must be escaped")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, SyntaxError> {
        let bytes = self.rest().as_bytes();
        let plain = match bytes.get(1) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err(self.error("unknown escape in a string")),
        };
        self.skip(2);
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char, SyntaxError> {
        let first = self.hex(0)?;
        if !(0xd800..0xe000).contains(&first) {
            self.skip(6);
            return char::from_u32(first).ok_or_else(|| self.error("no such character"));
        }
        let second = if self.rest().as_bytes().get(6..8) == Some(b"\\u") { self.hex(6)? } else { 0 };
        if first >= 0xdc00 || !(0xdc00..0xe000).contains(&second) {
            return Err(self.error("half of a surrogate pair stands alone"));
        }
        self.skip(12);
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        char::from_u32(code).ok_or_else(|| self.error("no such character"))
    }

    /// The four digits of `\uXXXX` that starts `from` bytes on.
    fn hex(&self, from: usize) -> Result<u32, SyntaxError> {
        let digits = self.rest().get(from.saturating_add(2)..from.saturating_add(6));
        digits
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|d| u32::from_str_radix(d, 16).ok())
            .ok_or_else(|| self.error("\\u needs four hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::source::node::{Resolved, resolve};

    /// The same value as serde_json understands it.
    fn plain(node: &Node<'_>) -> serde_json::Value {
        match &node.value {
            Value::Text(text) => serde_json::Value::String(text.to_string()),
            Value::Plain(text) => match resolve(text) {
                Resolved::Null => serde_json::Value::Null,
                Resolved::Bool(b) => b.into(),
                _ => serde_json::from_str(text).unwrap(),
            },
            Value::Seq(items) => items.iter().map(plain).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|e| (e.key.to_string(), plain(&e.value)))
                .collect::<serde_json::Map<_, _>>()
                .into(),
        }
    }

    #[test]
    fn surrogate_pairs_make_one_character() {
        assert_eq!(
            parse(r#"["\ud83d\ude00"]"#).unwrap().value,
            Value::Seq(vec![Node { at: Position { line: 1, column: 2 }, value: Value::Text("😀".into()) }])
        );
        for bad in
            [r#""\ud83d""#, r#""\ude00""#, r#""\ud83d\u0041""#, r#""\ud83dx""#, r#""\u12""#, r#""\u+123""#]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn positions_count_characters_and_lines() {
        let node = parse("{\"ä\": 1,\n  \"b\": [\n  true]}").unwrap();
        assert_eq!(node.locate("b"), Position { line: 2, column: 3 });
        assert_eq!(node.locate("b[0]"), Position { line: 3, column: 3 });
        assert_eq!(parse("{\"ä\": x}").unwrap_err().at, Position { line: 1, column: 7 });
    }

    #[test]
    fn duplicate_key_is_refused() {
        assert!(parse(r#"{"a":1,"a":2}"#).unwrap_err().message.contains("twice"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        assert!(parse(&"[".repeat(100_000)).unwrap_err().message.contains("deeper"));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json(text in "[\\[\\]{}:,\"\\\\ntrufalse0-9eE.+ u\u{0}-\u{20}äd]{0,24}") {
            let theirs: Result<serde_json::Value, _> = serde_json::from_str(&text);
            match (parse(&text), theirs) {
                (Ok(ours), Ok(theirs)) => prop_assert_eq!(plain(&ours), theirs),
                (Err(ours), Ok(_)) => prop_assert!(ours.message.contains("twice"), "{:?} {}", text, ours.message),
                // serde_json refuses numbers beyond f64, we keep the text
                (Ok(_), Err(theirs)) => prop_assert!(theirs.to_string().contains("out of range"), "{:?} {}", text, theirs),
                (Err(_), Err(_)) => {}
            }
        }

        #[test]
        fn reads_what_serde_json_writes(value in json_value()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            prop_assert_eq!(plain(&parse(&text).unwrap()), value);
        }
    }

    fn json_value() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|m| m.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }
}
