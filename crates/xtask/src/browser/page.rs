//! The page and its assets. Each asset has a visible effect that no other one has.

use std::fmt::Write;
use std::path::Path;

pub(crate) const STYLES: usize = 60;
pub(crate) const SCRIPTS: usize = 70;
pub(crate) const IMAGES: usize = 70;
pub(crate) const ASSETS: usize = STYLES + SCRIPTS + IMAGES;

/// Writes `index.html` and the folder `assets`.
pub(super) fn write(site: &Path) -> std::io::Result<()> {
    let assets = site.join("assets");
    std::fs::create_dir_all(&assets)?;
    let (mut head, mut body) = (String::new(), String::new());
    for at in 0..STYLES {
        std::fs::write(assets.join(format!("{at}.css")), style(at))?;
        let _ = writeln!(head, "<link rel=\"stylesheet\" href=\"assets/{at}.css\">");
        let _ = writeln!(body, "<div id=\"styled-{at}\"></div>");
    }
    for at in 0..SCRIPTS {
        std::fs::write(assets.join(format!("{at}.js")), script(at))?;
        let _ = writeln!(head, "<script src=\"assets/{at}.js\"></script>");
    }
    for at in 0..IMAGES {
        std::fs::write(assets.join(format!("{at}.svg")), image(at))?;
        let _ = writeln!(body, "<img id=\"image-{at}\" src=\"assets/{at}.svg\" alt=\"\">");
    }
    std::fs::write(
        site.join("index.html"),
        PAGE.replace("HEAD", &head).replace("BODY", &body).replace("CHECK", &check()),
    )
}

/// Sets the width of an element of the page, after several KB that must come in order.
fn style(at: usize) -> String {
    format!("{}#styled-{at} {{ width: {}px; height: 1px; }}\n", filler(at, "/* ", " */\n"), 100 + at)
}

/// Computes a sum over its own text, so that a changed byte shows.
fn script(at: usize) -> String {
    let text = filler(at, "", ";");
    let sum: u64 = text.bytes().map(u64::from).sum();
    format!(
        "globalThis.sums ??= [];\nsums[{at}] = [...{text:?}].reduce((sum, letter) => sum + letter.charCodeAt(0), 0) === {sum};\n"
    )
}

/// A unique width and height.
fn image(at: usize) -> String {
    let (width, height) = (10 + at, 110 - at);
    let filler = filler(at, "<!-- ", " -->\n");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\">{filler}<rect width=\"9\" height=\"9\"/></svg>\n"
    )
}

/// A hundred bytes to some tens of thousands, different for each asset.
fn filler(at: usize, before: &str, behind: &str) -> String {
    (0..1 + at * at / 4).map(|line| format!("{before}{at} {line}{behind}")).collect()
}

/// The page's check after everything has been loaded.
fn check() -> String {
    format!(
        "\
addEventListener('load', () => {{
  const ids = (count) => Array.from({{length: count}}, (_, at) => at);
  const get = (id) => document.getElementById(id);
  const good = (count, test) => ids(count).filter(test).length;
  const protocols = {{}};
  for (const entry of performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/assets/')))
    protocols[entry.nextHopProtocol] = (protocols[entry.nextHopProtocol] ?? 0) + 1;
  const result = {{
    styles: good({STYLES}, (at) => getComputedStyle(get(`styled-${{at}}`)).width === `${{100 + at}}px`),
    scripts: good({SCRIPTS}, (at) => globalThis.sums?.[at] === true),
    images: good({IMAGES}, (at) => get(`image-${{at}}`).naturalWidth === 10 + at && get(`image-${{at}}`).naturalHeight === 110 - at),
    protocols,
  }};
  get('result').textContent = JSON.stringify(result);
  document.title = 'loaded';
}});
performance.setResourceTimingBufferSize(1000);
"
    )
}

const PAGE: &str = "\
<!DOCTYPE html>
<html>
<head>
<meta charset=\"utf-8\">
<title>loading</title>
<link rel=\"icon\" href=\"data:,\">
<script>
CHECK</script>
HEAD</head>
<body>
<pre id=\"result\"></pre>
BODY</body>
</html>
";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn there_are_two_hundred_and_no_two_are_alike() {
        assert_eq!(ASSETS, 200);
        let texts = (0..STYLES).map(style).chain((0..SCRIPTS).map(script)).chain((0..IMAGES).map(image));
        assert_eq!(texts.collect::<HashSet<_>>().len(), ASSETS);
    }
}
