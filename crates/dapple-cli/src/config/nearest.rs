//! Suggests the name that the user may have meant.

/// The known name that differs from `name` in the fewest letters, if few enough for a typing error.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    // The command line has dashes in place of underscores.
    let name = name.to_lowercase().replace('-', "_");
    let distance_max = 1 + name.chars().count() / 4;
    let near =
        known.map(|known| (strsim::levenshtein(&name, known), known)).filter(|(distance, _)| *distance <= distance_max);
    near.min_by_key(|(distance, _)| *distance).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn typing_errors_are_found_and_no_guesses_are_made() {
        let known = ["cache_mb", "connections", "port"];
        for (name, meant) in
            [("cach_mb", Some("cache_mb")), ("cache-mb", Some("cache_mb")), ("Ports", Some("port")), ("paint", None)]
        {
            assert_eq!(nearest(name, known.into_iter()), meant, "{name}");
        }
    }
}
