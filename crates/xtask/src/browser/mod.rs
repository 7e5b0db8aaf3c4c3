//! A browser loads a page with 200 assets from `dapple serve`, and reports what it got over which
//! protocol.

mod chromium;
mod page;

use crate::served::{self, Server};
use crate::workspace::Workspace;
use chromium::Chromium;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// One way to serve the page.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
    /// The browser's name of the protocol, as in ALPN.
    protocol: &'static str,
}

/// For `cargo xtask browser`: a missing browser is an error.
pub(crate) fn run() -> Result<bool, String> {
    match Chromium::find() {
        Some(chromium) => load_all(&chromium),
        None => Err(format!("no Chromium is here; {}", chromium::INSTALL)),
    }
}

/// For `cargo xtask test`: installs a missing browser if that is simple, otherwise skips the check.
pub(crate) fn run_if_there() -> Result<bool, String> {
    match Chromium::find().or_else(Chromium::install) {
        Some(chromium) => load_all(&chromium),
        None => {
            println!("browser: SKIPPED, no Chromium is here; {}", chromium::INSTALL);
            Ok(true)
        }
    }
}

fn load_all(chromium: &Chromium) -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let dapple = served::build(&workspace)?;
    let folder = workspace.target.join(format!("browser-{}", std::process::id()));
    let site = folder.join("site");
    page::write(&site).map_err(|error| format!("cannot write {}: {error}", site.display()))?;
    let by_way = WAYS.iter().map(|way| (way.name, load(chromium, &dapple, &folder, way)));
    type Check = fn(&Chromium, &Path, &Path) -> Result<String, String>;
    let others: [(&str, Check); 3] = [("TCP in user space", load_over_own_tcp), ("insight", show), ("files", list)];
    let others = others.iter().map(|(name, check)| (*name, check(chromium, &dapple, &folder)));
    let mut all_good = true;
    for (name, outcome) in by_way.chain(others) {
        match outcome {
            Ok(said) => println!("browser: {name}: {said}"),
            Err(problem) => {
                all_good = false;
                println!("browser: {name} FAILED: {problem}");
            }
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    Ok(all_good)
}

/// The page from a server with TCP of its own, on a TUN interface in a network of its own, where the browser is the other host.
fn load_over_own_tcp(chromium: &Chromium, dapple: &Path, folder: &Path) -> Result<String, String> {
    let probe = Command::new("unshare").args(["--net", "ip", "tuntap", "add", "probe0", "mode", "tun"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return Ok("SKIPPED, it needs root, /dev/net/tun, and the programs unshare, nsenter and ip".to_owned());
    }
    let mut command = Command::new("unshare");
    // The shell becomes the server; the browser enters its network.
    command.args(["--net", "sh", "-c", OWN_TCP]).arg(dapple).arg(folder.join("site"));
    let server = Server::spawn(command)?;
    let chromium = chromium.in_network_of(server.pid());
    judge(&chromium.dump_dom(&server.url, &folder.join("profile-own-tcp"))?, "http/1.1")
}

const OWN_TCP: &str = "ip link set lo up && ip tuntap add web0 mode tun && ip addr add 10.7.0.2/24 dev web0 && ip link set web0 up && \
     exec \"$0\" serve \"$1\" --port 0 --net tun:web0,10.7.0.1/24";

/// The live page about a server comes to a verdict.
fn show(chromium: &Chromium, dapple: &Path, folder: &Path) -> Result<String, String> {
    let mut server = Server::start(dapple, &folder.join("site"), &["--insight", "127.0.0.1:0"])?;
    let url = server.next_url()?;
    judge_insight(&chromium.dump_dom(&url, &folder.join("profile-insight"))?)
}

/// Whether the page has shown a recording.
fn judge_insight(dom: &str) -> Result<String, String> {
    let text = |id: &str| {
        let (_, rest) = dom.split_once(&format!("id=\"{id}\""))?;
        rest.split_once('>')?.1.split_once('<').map(|(text, _)| text)
    };
    let (state, verdict) = (text("state").unwrap_or_default(), text("verdict").unwrap_or_default());
    match state.starts_with("recorded at") && verdict.contains("bottleneck") {
        true => Ok(verdict.to_owned()),
        false => Err(format!("the page says {state:?}, and its verdict is {verdict:?}")),
    }
}

/// The page of a file service lists the files, and its script offers what the user may do.
fn list(chromium: &Chromium, dapple: &Path, folder: &Path) -> Result<String, String> {
    let tree = folder.join("tree");
    let made =
        std::fs::create_dir_all(tree.join("directory")).and_then(|()| std::fs::write(tree.join("<b>&.txt"), "x"));
    made.map_err(|error| format!("cannot write {}: {error}", tree.display()))?;
    let mut command = Command::new(dapple);
    command.arg("files").arg(&tree).args(["--addr", "127.0.0.1:0", "--plain", "--token", "token-of-this-check"]);
    let server = Server::spawn(command)?;
    let url = server.url.replace("http://", "http://any:token-of-this-check@");
    judge_list(&chromium.dump_dom(&format!("{url}/"), &folder.join("profile-files"))?)
}

/// Whether the page shows both files, and the script has run.
fn judge_list(dom: &str) -> Result<String, String> {
    let wanted =
        ["&lt;b&gt;&amp;.txt", "href=\"./directory/\"", "aria-label=\"Delete directory\"", "<div id=\"tools\">"];
    match wanted.into_iter().find(|part| !dom.contains(part)) {
        None => Ok("two files, and what may be done with them".to_owned()),
        Some(missing) => {
            Err(format!("{missing} is missing; what the browser shows begins with {:?}", dom.get(..400).unwrap_or(dom)))
        }
    }
}

fn load(chromium: &Chromium, dapple: &Path, folder: &Path, way: &Way) -> Result<String, String> {
    let server = Server::start(dapple, &folder.join("site"), way.options)?;
    let profile = folder.join(format!("profile-{}", way.protocol.replace('/', "-")));
    let dom = chromium.dump_dom(&server.url, &profile)?;
    judge(&dom, way.protocol)
}

/// Whether the page reports success; the page compares the contents, this counts them.
fn judge(dom: &str, protocol: &str) -> Result<String, String> {
    let begin = dom.find(RESULT_BEGIN).map(|at| at + RESULT_BEGIN.len());
    let text = begin.and_then(|begin| dom[begin..].split_once("</pre>")).map(|(text, _)| text.trim());
    let text = text.filter(|text| !text.is_empty()).ok_or_else(|| {
        format!(
            "the page did not come to its end; what the browser shows begins with {:?}",
            dom.get(..400).unwrap_or(dom)
        )
    })?;
    let result: Value = serde_json::from_str(text).map_err(|error| format!("the page says {text:?}: {error}"))?;
    let count = |key: &str| result[key].as_u64().unwrap_or_default() as usize;
    let [styles, scripts, images] = ["styles", "scripts", "images"].map(count);
    let by_protocol = result["protocols"][protocol].as_u64().unwrap_or_default() as usize;
    let expected = (page::STYLES, page::SCRIPTS, page::IMAGES, page::ASSETS);
    if (styles, scripts, images, by_protocol) != expected {
        return Err(format!("of {expected:?} styles, scripts, images and all by {protocol}, the page says {text}"));
    }
    let all = page::ASSETS;
    Ok(format!("{all} assets are whole ({styles} styles, {scripts} scripts, {images} images), all by {protocol}"))
}

const RESULT_BEGIN: &str = "<pre id=\"result\">";

const WAYS: &[Way] = &[
    Way { name: "HTTP/1.1", options: &[], protocol: "http/1.1" },
    Way { name: "HTTP/2 with TLS", options: &["--tls-self-signed"], protocol: "h2" },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn dom(styles: usize, scripts: usize, images: usize, protocols: &str) -> String {
        let result = format!(r#"{{"styles":{styles},"scripts":{scripts},"images":{images},"protocols":{protocols}}}"#);
        format!("<html><body>{RESULT_BEGIN}{result}</pre></body></html>")
    }

    #[test]
    fn a_whole_page_is_good() {
        assert!(judge(&dom(60, 70, 70, r#"{"h2":200}"#), "h2").is_ok_and(|said| said.contains("200 assets")));
    }

    #[test]
    fn a_page_about_a_program_needs_a_recording_and_a_verdict() {
        let dom = |state: &str, verdict: &str| {
            format!("<span id=\"state\" role=\"status\">{state}</span><p id=\"verdict\">{verdict}</p>")
        };
        assert!(judge_insight(&dom("recorded at 4:00:00 PM", "The workers are the bottleneck.")).is_ok());
        for bad in [
            dom("asks for the first recording", ""),
            dom("the program has gone", "The workers are the bottleneck."),
            String::new(),
        ] {
            assert!(judge_insight(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_without_its_script_is_not_good() {
        let list = "<div id=\"tools\"><a href=\"./directory/\">directory</a>&lt;b&gt;&amp;.txt";
        assert!(judge_list(list).is_err_and(|problem| problem.contains("Delete")));
        assert!(judge_list(&format!("{list}<button aria-label=\"Delete directory\">")).is_ok());
    }

    #[test]
    fn a_page_that_lacks_something_is_not() {
        for bad in [
            dom(59, 70, 70, r#"{"h2":200}"#),
            dom(60, 69, 70, r#"{"h2":200}"#),
            dom(60, 70, 71, r#"{"h2":200}"#),
            dom(60, 70, 70, r#"{"h2":199,"http/1.1":1}"#),
            dom(60, 70, 70, r#"{"http/1.1":200}"#),
            dom(60, 70, 70, "{}"),
            format!("<html>{RESULT_BEGIN}</pre></html>"),
            format!("<html>{RESULT_BEGIN}loading</pre></html>"),
            String::new(),
        ] {
            assert!(judge(&bad, "h2").is_err(), "{bad}");
        }
    }
}
