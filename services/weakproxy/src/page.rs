//! Pages: without the parts that the device does not use.

use std::borrow::Cow;

use encoding_rs::Encoding;
use lol_html::html_content::Element;
use lol_html::{
    AsciiCompatibleEncoding, ElementContentHandlers, HtmlRewriter, MemorySettings, Selector, Settings, doc_comments,
    element,
};

use crate::fit::Fit;

/// The page for the device; comments are never in it.
///
/// # Errors
/// The reason why the page cannot be stripped.
pub(crate) fn stripped(page: &[u8], charset: Option<&str>, fit: &Fit) -> Result<Vec<u8>, String> {
    let by_mark = || Encoding::for_bom(page).map_or(encoding_rs::UTF_8, |(encoding, _)| encoding);
    let encoding = charset.map_or_else(|| Some(by_mark()), |name| Encoding::for_label(name.as_bytes()));
    let encoding = encoding
        .and_then(AsciiCompatibleEncoding::new)
        .ok_or("its charset is not known, or not one of single bytes")?;
    let mut page = Cow::Borrowed(page);
    if !fit.scripts && page.windows(9).any(|part| part.eq_ignore_ascii_case(b"<noscript")) {
        // Apart, because the text in it is markup for a device without scripts only.
        let unwrap = element!("noscript", |element| {
            element.remove_and_keep_content();
            Ok(())
        });
        page = rewritten(&page, encoding, vec![unwrap])?.into();
    }
    let unused = [(fit.scripts, SCRIPTS), (fit.styles, STYLES), (fit.frames, FRAMES)];
    let mut handlers = vec![element!("*", |element| {
        strip_attributes(element, fit);
        Ok(())
    })];
    handlers.extend(unused.into_iter().filter(|(is_used, _)| !is_used).map(|(_, selector)| {
        element!(selector, |element| {
            element.remove();
            Ok(())
        })
    }));
    rewritten(&page, encoding, handlers)
}

fn strip_attributes(element: &mut Element<'_, '_>, fit: &Fit) {
    let is_unused = |name: &str, value: &str| {
        let is_link = || value.trim_start().get(..11).is_some_and(|scheme| scheme.eq_ignore_ascii_case("javascript:"));
        (!fit.scripts && (name.starts_with("on") || is_link())) || (!fit.styles && name == "style")
    };
    let attributes = element.attributes().iter().map(|attribute| (attribute.name(), attribute.value()));
    let unused: Vec<String> = attributes.filter(|(name, value)| is_unused(name, value)).map(|(name, _)| name).collect();
    unused.iter().for_each(|name| element.remove_attribute(name));
}

fn rewritten<'h>(
    page: &[u8],
    encoding: AsciiCompatibleEncoding,
    handlers: Vec<Handler<'h>>,
) -> Result<Vec<u8>, String> {
    let settings = Settings::new().append_document_content_handler(doc_comments!(|comment| {
        comment.remove();
        Ok(())
    }));
    // Strict, it would give up on pages that browsers show.
    let settings = settings.with_encoding(encoding).with_strict(false).with_adjust_charset_on_meta_tag(true);
    let settings = settings.with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MEMORY_MAX));
    let settings = handlers.into_iter().fold(settings, Settings::append_element_content_handler);
    let mut out = Vec::with_capacity(page.len());
    let mut rewriter = HtmlRewriter::new(settings, |piece: &[u8]| out.extend_from_slice(piece));
    rewriter.write(page).and_then(|()| rewriter.end()).map_err(|error| error.to_string())?;
    Ok(out)
}

type Handler<'h> = (Cow<'static, Selector>, ElementContentHandlers<'h>);

const SCRIPTS: &str = "script, link[as=script i], link[rel=modulepreload i]";
const STYLES: &str = "style, link[rel~=stylesheet i], link[as=style i]";
const FRAMES: &str = "iframe, object, embed, applet";
const MEMORY_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn strip(page: &str, profile: serde_json::Value) -> String {
        String::from_utf8(stripped(page.as_bytes(), None, &Fit::of(&profile)).unwrap()).unwrap()
    }

    #[test]
    fn each_part_is_stripped_by_its_own_member() {
        let page = "<!doctype html><!-- c --><p onclick=x() style=a:b>T<script>s</script><style>t</style><iframe src=f></iframe>";
        let all = page.replace("<!-- c -->", "");
        assert_eq!(strip(page, json!({})), all);
        let no_scripts = strip(page, json!({"scripts": false}));
        assert_eq!(no_scripts, "<!doctype html><p style=a:b>T<style>t</style><iframe src=f></iframe>");
        let no_styles = strip(page, json!({"styles": false}));
        assert_eq!(no_styles, "<!doctype html><p onclick=x()>T<script>s</script><iframe src=f></iframe>");
        assert_eq!(strip(page, json!({"frames": false})), all.replace("<iframe src=f></iframe>", ""));
    }

    #[test]
    fn what_is_for_devices_without_scripts_is_shown_and_stripped_too() {
        let page = "<NOSCRIPT><p onload='x'>shown<script>no</script><!-- c --></NOSCRIPT>";
        assert_eq!(strip(page, json!({"scripts": false})), "<p>shown");
        assert_eq!(strip(page, json!({"scripts": true})), page);
    }

    #[test]
    fn links_of_scripts_and_styles_go_with_them() {
        let page = "<link rel='preload STYLESHEET' href=a><link rel=icon href=b><link as=Script href=c><a href=' JavaScript:x'>d</a>";
        let none = json!({"scripts": false, "styles": false});
        assert_eq!(strip(page, none), "<link rel=icon href=b><a>d</a>");
    }

    #[test]
    fn charsets_stay_what_they_are() {
        let fit = Fit::of(&json!({"scripts": false}));
        let page = b"<p>\xe9<!--\xe9--><script>\xe9</script>";
        assert_eq!(stripped(page, Some("iso-8859-1"), &fit).unwrap(), b"<p>\xe9");
        assert!(stripped(b"\xff\xfe<\0p\0>\0", None, &fit).unwrap_err().contains("single bytes"));
        assert!(stripped(page, Some("martian"), &fit).unwrap_err().contains("not known"));
    }

    #[test]
    fn broken_pages_neither_hang_nor_fail() {
        let none = json!({"scripts": false, "styles": false, "frames": false});
        for page in
            ["<", "<script>", "<!--", "<p <p <p", "</", "<noscript><noscript>", "<a b='", "\0<\0", "<svg><script>x"]
        {
            strip(page, none.clone());
        }
        strip(&"<div>".repeat(50_000), none.clone());
        assert_eq!(strip(&"<b onx=1>".repeat(5), none), "<b>".repeat(5));
    }
}
