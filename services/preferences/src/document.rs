//! Documents: JSON objects with the preferences of a user, or the profile of a device.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kinds of documents, each with a table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Any members. The member `devices` may have further ones for single devices.
    Users,
    /// A [`Profile`].
    Devices,
}

/// The abilities of a device, for programs that fit content to it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Profile {
    /// The screen, in pixels.
    width: u32,
    height: u32,
    /// The colors that it can show, as bits a pixel.
    color_bits: u8,
    /// The speed of its connection; 0 if it is not known.
    bytes_per_second: u64,
    /// The media types that it can show.
    formats: Vec<String>,
    /// Whether it runs scripts of pages.
    scripts: bool,
    /// Whether it shows pages in styles.
    styles: bool,
    /// Whether it shows pages and plug-ins inside of pages.
    frames: bool,
}

impl Default for Profile {
    fn default() -> Self {
        let formats = ["text/html", "image/jpeg", "image/png", "image/gif"].map(str::to_owned).to_vec();
        Profile {
            width: 1280,
            height: 1024,
            color_bits: 24,
            bytes_per_second: 0,
            formats,
            scripts: true,
            styles: true,
            frames: true,
        }
    }
}

/// Reads a document, and checks that it is one of this kind.
///
/// # Errors
/// A sentence for the client.
pub(crate) fn parse(kind: Kind, text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("the body is not JSON: {error}"))?;
    check(kind, value)
}

/// Checks that a value is a document of this kind. A profile gets the defaults of the members that it lacks.
fn check(kind: Kind, value: Value) -> Result<Value, String> {
    if !value.is_object() {
        return Err("the body is not a JSON object, such as {\"width\": 320}".to_owned());
    }
    if kind == Kind::Users {
        return match value.get("devices") {
            Some(devices) if !devices.as_object().is_some_and(|devices| devices.values().all(Value::is_object)) => {
                Err("`devices` is an object with an object for each device".to_owned())
            }
            _ => Ok(value),
        };
    }
    let profile: Profile = serde_json::from_value(value).map_err(|error| format!("this is no profile: {error}"))?;
    let pixels = 1..=PIXELS_MAX;
    if !pixels.contains(&profile.width) || !pixels.contains(&profile.height) {
        return Err(format!("`width` and `height` are 1 to {PIXELS_MAX}"));
    }
    if !(1..=COLOR_BITS_MAX).contains(&profile.color_bits) {
        return Err(format!("`color_bits` is 1 to {COLOR_BITS_MAX}"));
    }
    serde_json::to_value(profile).map_err(|error| error.to_string())
}

/// Changes a document by a JSON merge patch (RFC 7396): members of the patch replace those of the document, and `null`
/// removes one.
///
/// # Errors
/// As [`parse`].
pub(crate) fn patched(kind: Kind, document: Option<Value>, patch: &Value) -> Result<Value, String> {
    let mut document = document.unwrap_or_else(|| Value::Object(Map::new()));
    merge(&mut document, patch);
    check(kind, document)
}

/// The preferences of a user at a device: the profile, over it the user's preferences, and over them those for this device.
pub(crate) fn effective(device: &str, profile: Value, user: Option<Value>) -> Value {
    let mut all = profile;
    let Some(mut user) = user else { return all };
    let own = user.as_object_mut().and_then(|user| user.remove("devices"));
    merge(&mut all, &user);
    if let Some(own) = own.as_ref().and_then(|devices| devices.get(device)) {
        merge(&mut all, own);
    }
    all
}

/// Texts are at most as deep as `serde_json` reads, so the recursion is, too.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    if let Value::Object(target) = target {
        for (name, value) in patch {
            if value.is_null() {
                target.remove(name);
            } else {
                merge(target.entry(name).or_insert(Value::Null), value);
            }
        }
    }
}

const PIXELS_MAX: u32 = 20_000;
const COLOR_BITS_MAX: u8 = 48;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patches_follow_the_examples_of_the_rfc() {
        for (document, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [1, 2]}), json!({"a": {"b": "c", "d": null}}), json!({"a": {"b": "c"}})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            assert_eq!(patched(Kind::Users, Some(document), &patch), Ok(result), "{patch}");
        }
        assert!(patched(Kind::Users, None, &json!(["c"])).is_err());
    }

    #[test]
    fn documents_of_another_form_are_refused_with_a_sentence() {
        let refused = |kind, text: &str| parse(kind, text).unwrap_err();
        assert!(refused(Kind::Users, "{").starts_with("the body is not JSON: EOF"));
        assert!(refused(Kind::Users, "[]").contains("not a JSON object"));
        assert!(refused(Kind::Users, r#"{"devices": {"phone": 1}}"#).contains("an object for each device"));
        assert!(refused(Kind::Users, &"[".repeat(1000)).contains("recursion limit"));
        assert!(refused(Kind::Devices, r#"{"widht": 1}"#).contains("expected one of `width`, `height`"));
        assert!(refused(Kind::Devices, r#"{"width": 0}"#).contains("1 to 20000"));
        assert!(refused(Kind::Devices, r#"{"color_bits": 99}"#).contains("1 to 48"));
        assert_eq!(parse(Kind::Devices, r#"{"width": 320}"#).unwrap()["height"], 1024);
    }

    #[test]
    fn preferences_for_a_device_go_before_others() {
        let user = json!({"language": "de", "width": 100, "devices": {"phone": {"width": 50}, "tv": {"width": 9}}});
        let at_phone = effective("phone", json!({"width": 320, "height": 240}), Some(user.clone()));
        assert_eq!(at_phone, json!({"language": "de", "width": 50, "height": 240}));
        assert_eq!(effective("watch", json!({"width": 320}), Some(user)), json!({"language": "de", "width": 100}));
        assert_eq!(effective("watch", json!({"width": 320}), None), json!({"width": 320}));
    }
}
