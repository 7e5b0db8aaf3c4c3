//! The abilities of devices, by their profiles.

use std::hash::Hash;

use image::ImageFormat;
use serde_json::Value;

/// The abilities of a device that change an answer. Devices with equal ones share what was made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fit {
    /// The largest picture, in pixels.
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// The quality of JPEG, 1 to 100.
    pub(crate) quality: u8,
    pub(crate) is_gray: bool,
    /// The formats of pictures that the device can show.
    pub(crate) formats: Vec<ImageFormat>,
    pub(crate) scripts: bool,
    pub(crate) styles: bool,
    pub(crate) frames: bool,
}

impl Fit {
    /// Reads a document of the registry. Users may have written anything into it, and nonsense has no effect.
    pub(crate) fn of(profile: &Value) -> Fit {
        let number = |name: &str| profile[name].as_u64().filter(|number| *number > 0);
        let pixels = |name, default| number(name).and_then(|number| number.try_into().ok()).unwrap_or(default);
        let is_on = |name: &str| profile[name].as_bool().unwrap_or(true);
        let by_speed = match number("bytes_per_second") {
            Some(..4_000) => 25,
            Some(..32_000) => 50,
            _ => 75,
        };
        let shown = profile["formats"].as_array();
        let is_shown = |format: &str, is_usual| shown.map_or(is_usual, |shown| shown.iter().any(|name| name == format));
        let formats = FORMATS.into_iter().filter(|(name, format)| is_shown(name, *format != ImageFormat::WebP));
        Fit {
            width: pixels("width", 1280),
            height: pixels("height", 1024),
            quality: number("quality").filter(|quality| *quality <= 100).map_or(by_speed, |quality| quality as u8),
            is_gray: number("color_bits").is_some_and(|bits| bits < 8),
            formats: formats.map(|(_, format)| format).collect(),
            scripts: is_on("scripts"),
            styles: is_on("styles"),
            frames: is_on("frames"),
        }
    }

    /// Its part of a key in the table.
    pub(crate) fn key(&self) -> String {
        format!("{self:?}")
    }
}

/// The format of a picture by its media type.
pub(crate) fn format_of(kind: &str) -> Option<ImageFormat> {
    FORMATS.iter().find(|(name, _)| name.eq_ignore_ascii_case(kind)).map(|(_, format)| *format)
}

const FORMATS: [(&str, ImageFormat); 4] = [
    ("image/jpeg", ImageFormat::Jpeg),
    ("image/png", ImageFormat::Png),
    ("image/gif", ImageFormat::Gif),
    ("image/webp", ImageFormat::WebP),
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nonsense_in_a_document_has_no_effect() {
        let default = Fit::of(&json!({}));
        let odd =
            json!({"width": -1, "height": "x", "quality": 1000, "formats": 7, "scripts": "no", "color_bits": null});
        assert_eq!(Fit::of(&odd), default);
        assert_eq!((default.width, default.quality, default.formats.len(), default.scripts), (1280, 75, 3, true));
    }

    #[test]
    fn all_that_changes_an_answer_is_in_the_key() {
        let changes = [
            json!({"width": 1}),
            json!({"height": 1}),
            json!({"quality": 1}),
            json!({"bytes_per_second": 1000}),
            json!({"color_bits": 1}),
            json!({"formats": ["image/png"]}),
            json!({"scripts": false}),
            json!({"styles": false}),
            json!({"frames": false}),
        ];
        let mut keys: Vec<String> = changes.iter().map(|change| Fit::of(change).key()).collect();
        keys.push(Fit::of(&json!({})).key());
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), changes.len() + 1);
    }
}
