//! What somebody may have meant by a name that is not known.

/// The known name that differs from `name` in the fewest letters, if they are few enough for a slip of the hand.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // Dashes are what the command line has in place of underscores.
    let name = name.to_lowercase().replace('-', "_");
    let distance_max = 1 + name.chars().count() / 4;
    let near = known.map(|known| (distance(&name, known), known)).filter(|(distance, _)| *distance <= distance_max);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

/// How many letters have to be put in, taken out or replaced to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, beside) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *beside);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::{distance, nearest};

    #[test]
    fn slips_are_found_and_guesses_are_not_made() {
        let known = ["cache_mb", "connections", "port"];
        for (name, meant) in
            [("cach_mb", Some("cache_mb")), ("cache-mb", Some("cache_mb")), ("Ports", Some("port")), ("paint", None)]
        {
            assert_eq!(nearest(name, known.into_iter()), meant, "{name}");
        }
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
