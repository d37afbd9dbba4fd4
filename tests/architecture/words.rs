//! Rust text as a list of words: identifiers and signs, without comments, text and test code.

/// The words of a source.
pub fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let chars: Vec<char> = text.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let (char, next) = (chars[at], chars.get(at + 1).copied().unwrap_or(' '));
        if char == '/' && next == '/' {
            at = end_of_line(&chars, at);
        } else if char == '/' && next == '*' {
            at = end_of_comment(&chars, at);
        } else if char == '"' {
            at = end_of_text(&chars, at + 1);
        } else if char == '\'' {
            at = end_of_char(&chars, at);
        } else if char.is_alphanumeric() || char == '_' {
            let end = (at..chars.len())
                .find(|end| !(chars[*end].is_alphanumeric() || chars[*end] == '_'))
                .unwrap_or(chars.len());
            let word: String = chars[at..end].iter().collect();
            let is_raw = matches!(word.as_str(), "r" | "br")
                && chars.get(end).is_some_and(|char| *char == '"' || *char == '#');
            if is_raw && raw_hashes(&chars, end).is_some() {
                at = end_of_raw_text(&chars, end);
            } else {
                words.push(word);
                at = end;
            }
        } else if char == ':' && next == ':' {
            words.push("::".to_owned());
            at += 2;
        } else {
            if !char.is_whitespace() {
                words.push(char.to_string());
            }
            at += 1;
        }
    }
    words
}

fn end_of_line(chars: &[char], at: usize) -> usize {
    (at..chars.len()).find(|at| chars[*at] == '\n').unwrap_or(chars.len())
}

fn end_of_comment(chars: &[char], at: usize) -> usize {
    let (mut at, mut depth) = (at + 2, 1);
    while depth > 0 && at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (at, depth) = (at + 2, depth + 1),
            ('*', Some('/')) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
    }
    at
}

fn end_of_text(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// A lifetime has no closing quote.
fn end_of_char(chars: &[char], at: usize) -> usize {
    if chars.get(at + 1) == Some(&'\\') {
        return (at + 3..chars.len()).find(|at| chars[*at] == '\'').unwrap_or(chars.len()) + 1;
    }
    if chars.get(at + 2) == Some(&'\'') { at + 3 } else { at + 1 }
}

fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at..].iter().take_while(|char| **char == '#').count();
    (chars.get(at + hashes) == Some(&'"')).then_some(hashes)
}

fn end_of_raw_text(chars: &[char], at: usize) -> usize {
    let hashes = raw_hashes(chars, at).unwrap_or(0);
    let mut at = at + hashes + 1;
    while at < chars.len() {
        let closing = chars[at + 1..].iter().take_while(|char| **char == '#').count();
        if chars[at] == '"' && closing >= hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    at
}

/// Splits what is compiled always from the items under `#[cfg(test)]`.
pub fn without_tests(words: &[String]) -> (Vec<String>, Vec<String>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut tests) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < words.len() {
        if words[at..].iter().map(String::as_str).take(MARK.len()).eq(MARK) {
            let end = end_of_item(words, at + MARK.len());
            tests.extend_from_slice(&words[at + MARK.len()..end]);
            at = end;
        } else {
            kept.push(words[at].clone());
            at += 1;
        }
    }
    (kept, tests)
}

/// Behind the `;` or the block that ends the item at `at`.
fn end_of_item(words: &[String], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while at < words.len() {
        match words[at].as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && words[at] == "}" {
                    return at + 1;
                }
            }
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
        at += 1;
    }
    at
}
