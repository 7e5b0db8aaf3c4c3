//! Names by which two sides notice that they mean different types.

use std::any::type_name;

/// The input and output of a stage, as text: the names of the types without their modules,
/// `Task -> Signature`.
///
/// It distinguishes types with different names, not two versions of one type: give those a schema
/// of their own, such as `sign 2`.
///
/// ```
/// use dapple_remote::schema_of;
///
/// assert_eq!(schema_of::<Option<std::time::Duration>, Vec<u8>>(), "Option<Duration> -> Vec<u8>");
/// ```
pub fn schema_of<Req, Resp>() -> String {
    format!("{} -> {}", without_modules(type_name::<Req>()), without_modules(type_name::<Resp>()))
}

/// Keeps the last part of each path: the module of a type differs between programs, and between
/// versions of a library.
fn without_modules(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut part = String::new();
    let mut characters = name.chars().peekable();
    while let Some(character) = characters.next() {
        if character.is_alphanumeric() || character == '_' {
            part.push(character);
        } else if character == ':' && characters.peek() == Some(&':') {
            characters.next();
            part.clear();
        } else {
            short.push_str(&part);
            part.clear();
            short.push(character);
        }
    }
    short.push_str(&part);
    in_a_header(&short)
}

/// The schema in a form that a header can carry.
pub(crate) fn in_a_header(schema: &str) -> String {
    let fits = |character: char| character == ' ' || character.is_ascii_graphic();
    schema.trim().chars().map(|character| if fits(character) { character } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::schema_of;

    mod inner {
        pub(super) struct Task;
    }

    #[test]
    fn modules_are_left_out() {
        assert_eq!(schema_of::<(inner::Task, &[u8]), ()>(), "(Task, &[u8]) -> ()");
        assert_eq!(schema_of::<Vec<Option<inner::Task>>, [u8; 4]>(), "Vec<Option<Task>> -> [u8; 4]");
    }
}
