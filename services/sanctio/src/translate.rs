//! Translation, as a stage before each listener: by a dictionary, word for word, or by a server.
//!
//! A server gets and gives the JSON of LibreTranslate. If a translation fails or takes too long, the listener gets the
//! message as it was said. The archive keeps what was said.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, header};
use dapple::http::{Client, Error};
use dapple::stage::{BoxError, Stage};
use serde_json::{Value, json};

/// A text, the language that it is in, and the one of its reader.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) text: String,
}

/// Translates.
pub(crate) type Translator = Stage<Ask, String, BoxError>;

/// Words in several languages. The first line names them, and each other one is a word in all of them, with tabs between.
#[derive(Clone, Debug)]
pub(crate) struct Dictionary {
    languages: Vec<String>,
    rows: Vec<Vec<String>>,
    /// The row of a word of a language.
    places: HashMap<(usize, String), usize>,
}

impl Dictionary {
    /// Reads a dictionary from a file.
    pub(crate) fn read(file: &str) -> Result<Dictionary, std::io::Error> {
        std::fs::read_to_string(file).map(|text| Dictionary::new(&text))
    }

    pub(crate) fn new(text: &str) -> Dictionary {
        let mut lines =
            text.lines().map(|line| line.split('\t').map(|word| word.trim().to_owned()).collect::<Vec<_>>());
        let languages = lines.next().unwrap_or_default();
        let rows: Vec<Vec<String>> = lines.filter(|row| row.len() == languages.len()).collect();
        let mut places = HashMap::new();
        for (place, row) in rows.iter().enumerate() {
            for (language, word) in row.iter().enumerate() {
                // The first meaning counts.
                places.entry((language, word.to_lowercase())).or_insert(place);
            }
        }
        Dictionary { languages, rows, places }
    }

    fn translated(&self, Ask { from, to, text }: &Ask) -> Result<String, BoxError> {
        let place = |name: &String| self.languages.iter().position(|language| language == name);
        let (Some(from), Some(to)) = (place(from), place(to)) else {
            return Err(format!("the dictionary does not have {from} and {to}").into());
        };
        let is_end = |letter: char| !letter.is_alphabetic();
        let words = text.split_inclusive(is_end).map(|piece| {
            let word = piece.trim_end_matches(is_end);
            let Some(row) = self.places.get(&(from, word.to_lowercase())) else { return piece.to_owned() };
            let (mut found, rest) = (self.rows[*row][to].clone(), &piece[word.len()..]);
            if let (true, Some(first)) = (word.starts_with(char::is_uppercase), found.chars().next()) {
                found = first.to_uppercase().chain(found.chars().skip(1)).collect();
            }
            found + rest
        });
        Ok(words.collect())
    }
}

/// Translates by a server with this URL, or else by the dictionary.
pub(crate) fn translator(dictionary: Dictionary, url: Option<String>) -> Result<Translator, Error> {
    let client = Client::builder().timeout(TIME_MAX).body_bytes_max(ANSWER_LEN_MAX).build()?;
    let shared = Arc::new((dictionary, url, client));
    let stage = Stage::builder("translate").queue_len_max(QUEUE_LEN_MAX).width(WIDTH).deadline(TIME_MAX);
    Ok(stage.wrap_fn(move |ask: Ask| {
        let shared = shared.clone();
        async move {
            match &shared.1 {
                Some(url) => from_server(&shared.2, url, &ask).await,
                None => shared.0.translated(&ask),
            }
        }
    }))
}

async fn from_server(client: &Client, url: &str, Ask { from, to, text }: &Ask) -> Result<String, BoxError> {
    let body = json!({ "q": text, "source": from, "target": to, "format": "text" }).to_string();
    let request = Request::post(url).header(header::CONTENT_TYPE, "application/json").body(body)?;
    let answer: Value = client.request(request).await?.error_for_status()?.json().await?;
    Ok(answer["translatedText"].as_str().ok_or("the answer has no `translatedText`")?.to_owned())
}

const TIME_MAX: Duration = Duration::from_secs(3);
const ANSWER_LEN_MAX: usize = 64 << 10;
const QUEUE_LEN_MAX: usize = 1000;
const WIDTH: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_translated_in_their_places() {
        let dictionary = Dictionary::new("en\tde\nhello\thallo\nworld\tWelt\ngood\tgut\nodd row\n");
        let translated = |from: &str, to: &str, text: &str| {
            dictionary.translated(&Ask { from: from.to_owned(), to: to.to_owned(), text: text.to_owned() }).ok()
        };
        assert_eq!(
            translated("en", "de", "Hello, world! (hello?) 42\nunknown").unwrap(),
            "Hallo, Welt! (hallo?) 42\nunknown"
        );
        assert_eq!(translated("de", "en", "welt").unwrap(), "world");
        assert_eq!((translated("en", "fr", "hello"), translated("xx", "de", "")), (None, None));
    }

    #[test]
    fn the_dictionary_that_ships_is_whole() {
        let text = include_str!("dictionary.tsv");
        let dictionary = Dictionary::new(text);
        assert_eq!((dictionary.languages.len(), dictionary.rows.len()), (3, text.lines().count() - 1));
    }
}
