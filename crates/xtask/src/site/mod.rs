//! `cargo xtask site`: the documentation as a site with search, by mdBook, from the files that the
//! repository shows.
//!
//! Pages keep their paths, so that links between them hold. Links to other files of the repository
//! get a copy of that file, links to folders a page that lists their contents. A link to nothing
//! fails the command, and so does a program that no test runs.

mod links;
mod pages;

use crate::workspace::{Workspace, cargo};
use links::{Link, anchors, links};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Builds the site.
pub(crate) fn run() -> Result<bool, String> {
    let workspace = Workspace::own()?;
    let Some(site) = checked(&workspace)? else { return Ok(false) };
    let folder = workspace.target.join("site");
    site.write(&folder)?;
    let mdbook = find(&workspace).map_or_else(|| install(&workspace), Ok)?;
    let status = Command::new(&mdbook).arg("build").current_dir(&folder).status();
    let built = status.map_err(|error| format!("cannot run {}: {error}", mdbook.display()))?.success();
    let broken = broken_links(&folder.join("book"))?;
    broken.iter().for_each(|link| println!("site: {link}"));
    let built = built && broken.is_empty();
    if built {
        println!("site: {}; `cargo run --release -- serve target/site/book` shows it", folder.join("book").display());
    }
    Ok(built)
}

/// For CI: only the links, and whether tests run all programs.
pub(crate) fn check() -> Result<bool, String> {
    Ok(checked(&Workspace::own()?)?.is_some())
}

/// The site, unless it has a problem.
fn checked(workspace: &Workspace) -> Result<Option<Site>, String> {
    let mut site = Site { root: workspace.root.clone(), ..Site::default() };
    site.gather()?;
    site.find_untested()?;
    site.problems.iter().for_each(|problem| println!("{problem}"));
    let (pages, problems) = (site.pages.len(), site.problems.len());
    println!("site: {pages} pages, {} links, {problems} problems", site.links);
    Ok((problems == 0).then_some(site))
}

/// All that mdBook reads, by paths from the root of the repository.
#[derive(Default)]
struct Site {
    root: PathBuf,
    /// Pages and what becomes of their text.
    pages: BTreeMap<PathBuf, String>,
    /// Titles of the pages that are not in the table of contents.
    more: BTreeMap<PathBuf, String>,
    /// Other files that pages link to.
    files: BTreeSet<PathBuf>,
    links: usize,
    problems: Vec<String>,
}

impl Site {
    /// Reads the pages, follows their links and rewrites those that do not lead to a page or file.
    fn gather(&mut self) -> Result<(), String> {
        let listed = pages::PARTS.iter().flat_map(|(_, pages)| *pages).map(|(_, path)| PathBuf::from(path));
        let mut left: Vec<PathBuf> = listed.collect();
        for path in markdown(&self.root.join("docs"))? {
            let path = Path::new("docs").join(path.file_name().unwrap_or_default());
            if !left.contains(&path) {
                self.problems.push(format!("{}: is not in crates/xtask/src/site/pages.rs", path.display()));
            }
        }
        let mut seen = BTreeSet::new();
        while let Some(path) = left.pop() {
            if !seen.insert(path.clone()) {
                continue;
            }
            let mut text = self.read(&path)?;
            for link in links(&text).iter().rev() {
                self.links += 1;
                match self.follow(&path, link, &mut left)? {
                    Some(instead) => text.replace_range(link.whole.clone(), &instead),
                    None => continue,
                }
            }
            self.pages.insert(path, text);
        }
        Ok(())
    }

    /// Checks a link. Returns the replacement, if any.
    fn follow(&mut self, page: &Path, link: &Link, left: &mut Vec<PathBuf>) -> Result<Option<String>, String> {
        let Link { text, target, .. } = link;
        if ["http://", "https://", "mailto:"].iter().any(|scheme| target.starts_with(scheme)) {
            return Ok(None);
        }
        // Links of rustdoc, which only rustdoc can follow, and does.
        if target.contains("::") {
            return Ok(Some(text.clone()));
        }
        let (path, fragment) = target.split_once('#').map_or((&**target, None), |(path, at)| (path, Some(at)));
        let place = match path {
            "" => page.to_owned(),
            _ => normal(&page.parent().unwrap_or(Path::new("")).join(path)),
        };
        let there = self.root.join(&place);
        if !there.exists() {
            self.problem(page, link, "leads to nothing");
            return Ok(None);
        }
        if there.is_dir() {
            let index = match there.join("README.md").is_file() {
                true => place.join("README.md"),
                false => self.list(&place)?,
            };
            self.title(&index);
            left.push(index.clone());
            let index = shown(&index);
            let up = page.components().skip(1).map(|_| "../").collect::<String>();
            return Ok(Some(format!("[{text}]({up}{})", index.display())));
        }
        if place.extension().is_none_or(|extension| extension != "md") {
            self.files.insert(place);
            return Ok(None);
        }
        if let Some(fragment) = fragment
            && !anchors(&self.read(&place)?).iter().any(|anchor| anchor == fragment)
        {
            self.problem(page, link, "leads to no heading of that page");
        }
        self.title(&place);
        left.push(place.clone());
        // A page for a folder has another name in the site.
        let instead = path.strip_suffix("README.md").map(|folder| {
            let fragment = fragment.map(|fragment| format!("#{fragment}")).unwrap_or_default();
            format!("[{text}]({folder}index.md{fragment})")
        });
        Ok(instead)
    }

    /// A page that lists the files of a folder, for folders without a `README.md`.
    fn list(&mut self, folder: &Path) -> Result<PathBuf, String> {
        let mut names = Vec::new();
        for entry in entries(&self.root.join(folder))? {
            if let (true, Some(name)) = (entry.is_file(), entry.file_name().and_then(|name| name.to_str())) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        let index = folder.join("index.md");
        if self.pages.contains_key(&index) {
            return Ok(index);
        }
        let mut text = format!("# {}\n\n", folder.display());
        for name in names {
            text += &format!("- [{name}]({name})\n");
        }
        self.pages.insert(index.clone(), text);
        Ok(index)
    }

    /// Notes a page that is in no part of the table of contents.
    fn title(&mut self, page: &Path) {
        let is_listed = pages::PARTS.iter().flat_map(|(_, pages)| *pages).any(|(_, path)| Path::new(path) == page);
        if !is_listed {
            let folder = page.parent().unwrap_or(page).display().to_string();
            self.more.entry(page.to_owned()).or_insert(folder);
        }
    }

    /// A page with a program in Rust is part of some crate's documentation; the documentation tests
    /// run the program.
    fn find_untested(&mut self) -> Result<(), String> {
        let mut sources = String::new();
        for entry in entries(&self.root.join("crates"))? {
            for file in ["src/lib.rs", "src/operators/mod.rs", "src/coming_from_tokio.rs"] {
                sources += &std::fs::read_to_string(entry.join(file)).unwrap_or_default();
            }
        }
        for (page, text) in &self.pages {
            let has_program = text.lines().any(|line| line == "```rust" || line == "```rust,no_run");
            let name = page.display().to_string();
            let is_tested = sources.lines().any(|line| line.contains("include_str!") && includes(line, &name));
            if has_program && !is_tested {
                self.problems.push(format!(
                    "{name}: no documentation test runs its programs; see the end of crates/dapple/src/lib.rs"
                ));
            }
        }
        Ok(())
    }

    fn read(&self, page: &Path) -> Result<String, String> {
        if let Some(text) = self.pages.get(page) {
            return Ok(text.clone());
        }
        let path = self.root.join(page);
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    fn problem(&mut self, page: &Path, link: &Link, what: &str) {
        self.problems.push(format!("{}:{}: `{}` {what}", page.display(), link.line, link.target));
    }

    /// Writes mdBook's input into a new folder.
    fn write(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
        if folder.exists() {
            std::fs::remove_dir_all(folder).map_err(failed)?;
        }
        let source = folder.join("src");
        let put = |path: &Path, bytes: &[u8]| {
            let path = source.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(&source))?;
            std::fs::write(path, bytes)
        };
        for (page, text) in &self.pages {
            put(&shown(page), text.as_bytes()).map_err(failed)?;
        }
        for file in &self.files {
            let bytes = std::fs::read(self.root.join(file));
            bytes.and_then(|bytes| put(file, &bytes)).map_err(failed)?;
        }
        put(Path::new("SUMMARY.md"), self.summary().as_bytes()).map_err(failed)?;
        std::fs::write(folder.join("book.toml"), BOOK).map_err(failed)
    }

    /// The table of contents, as mdBook wants it.
    fn summary(&self) -> String {
        let mut text = "# Summary\n".to_owned();
        for (title, pages) in pages::PARTS {
            text += &format!("\n# {title}\n\n");
            pages
                .iter()
                .for_each(|(title, path)| text += &format!("- [{title}]({})\n", shown(Path::new(path)).display()));
        }
        text += "\n# Crates and sources\n\n";
        self.more.iter().for_each(|(path, title)| text += &format!("- [{title}]({})\n", shown(path).display()));
        text
    }
}

/// Whether a line such as `#[doc = include_str!("../../../docs/stm.md")]` means that page.
fn includes(line: &str, page: &str) -> bool {
    let path = line.split('"').nth(1).unwrap_or_default().trim_start_matches("../");
    path == page || (!path.contains('/') && page.ends_with(&format!("/src/{path}")))
}

/// The path of a page in the site, where `index.md` is what `README.md` is in the repository. mdBook renames that page by itself, but
/// not the links to it.
fn shown(page: &Path) -> PathBuf {
    match page.file_name().is_some_and(|name| name == "README.md") {
        true => page.with_file_name("index.md"),
        false => page.to_owned(),
    }
}

/// The links in the pages of a site that lead to no file of it. `print.html` and `404.html` repeat
/// other pages or are separate.
fn broken_links(book: &Path) -> Result<Vec<String>, String> {
    let (mut broken, mut folders) = (Vec::new(), vec![book.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in entries(&folder)? {
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html")
                && name != "print.html"
                && name != "404.html"
            {
                let text = std::fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                let leads_nowhere = |target: &&str| !target.is_empty() && !folder.join(target).exists();
                let page = path.strip_prefix(book).unwrap_or(&path).display();
                broken.extend(
                    targets(&text).filter(leads_nowhere).map(|target| format!("{page}: `{target}` leads to nothing")),
                );
            }
        }
    }
    Ok(broken)
}

/// The relative targets of `href` and `src` in a page, without their fragments.
fn targets(page: &str) -> impl Iterator<Item = &str> {
    let marked = ["href=\"", "src=\""].into_iter().flat_map(|mark| page.split(mark).skip(1));
    let targets = marked
        .filter_map(|rest| rest.split('"').next())
        .filter(|target| !target.contains(':') && !target.starts_with("//"));
    targets.map(|target| target.split(['#', '?']).next().unwrap_or_default())
}

/// A relative path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

fn markdown(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let is_markdown = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    Ok(entries(folder)?.into_iter().filter(is_markdown).collect())
}

/// The mdBook that this command has installed, or that of the user.
fn find(workspace: &Workspace) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("mdbook"));
    std::iter::once(workspace.target.join("tools/bin/mdbook")).chain(in_path).find(|path| path.is_file())
}

fn install(workspace: &Workspace) -> Result<PathBuf, String> {
    let tools = workspace.target.join("tools");
    println!("site: installs mdBook {MDBOOK} into {}", tools.display());
    let mut command = cargo();
    command.args([
        "install",
        "mdbook",
        "--version",
        MDBOOK,
        "--locked",
        "--no-default-features",
        "--features",
        "search",
    ]);
    // A debug build is ready in a third of the time, and fast enough for these pages.
    command.args(["--debug", "--root"]).arg(&tools).arg("--target-dir").arg(tools.join("build"));
    let status = command.status().map_err(|error| format!("cannot run cargo: {error}"))?;
    match status.success() {
        true => Ok(tools.join("bin/mdbook")),
        false => Err(format!("mdBook cannot be installed here: cargo install mdbook --version {MDBOOK}")),
    }
}

const MDBOOK: &str = "0.5.4";

const BOOK: &str = "\
[book]
title = \"Dapple\"
description = \"Write a network service as if it ran on one core; let it use all of them\"
language = \"en\"

[build]
create-missing = false

[output.html.playground]
runnable = false
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_their_dots() {
        assert_eq!(normal(Path::new("docs/../crates/./rpc")), Path::new("crates/rpc"));
        assert_eq!(normal(Path::new("docs/img/a.svg")), Path::new("docs/img/a.svg"));
    }

    #[test]
    fn targets_of_html_are_relative_ones() {
        let page = "<a href=\"a.html#b\">x</a> <a href=\"https://c\"> <img src=\"../d.svg\"> <a href=\"#e\">";
        assert_eq!(targets(page).collect::<Vec<_>>(), ["a.html", "", "../d.svg"]);
        assert_eq!(shown(Path::new("crates/x/README.md")), Path::new("crates/x/index.md"));
    }

    #[test]
    fn pages_of_documentation_are_known() {
        assert!(includes("#[doc = include_str!(\"../../../docs/stm.md\")]", "docs/stm.md"));
        assert!(!includes("#[doc = include_str!(\"../../../docs/stm.md\")]", "docs/tasks.md"));
        let inner = "#![doc = include_str!(\"coming_from_tokio.md\")]";
        assert!(includes(inner, "crates/dapple/src/coming_from_tokio.md"));
    }

    /// A site of one page that links to a page, a folder, a file and to nothing.
    #[test]
    fn links_are_followed_and_a_broken_one_is_found() {
        let root = std::env::temp_dir().join(format!("xtask-site-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs")).unwrap();
        std::fs::create_dir_all(root.join("examples")).unwrap();
        std::fs::write(root.join("examples/a.rs"), "").unwrap();
        std::fs::write(root.join("docs/b.md"), "# Good\n").unwrap();
        let page = "[b](b.md#good) [x](b.md#bad) [e](../examples) [a](../examples/a.rs) [n](none.md) [h](https://a.b) [r](../README.md#r)";
        std::fs::write(root.join("README.md"), "# R\n").unwrap();
        let mut site = Site { root: root.clone(), ..Site::default() };
        let mut left = Vec::new();
        let followed: Vec<_> =
            links(page).iter().map(|link| site.follow(Path::new("docs/a.md"), link, &mut left).unwrap()).collect();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(followed[2].as_deref(), Some("[e](../examples/index.md)"));
        assert_eq!(followed[6].as_deref(), Some("[r](../index.md#r)"));
        assert_eq!(followed.iter().flatten().count(), 2);
        let expected =
            ["docs/a.md:1: `b.md#bad` leads to no heading of that page", "docs/a.md:1: `none.md` leads to nothing"];
        assert_eq!(site.problems, expected);
        assert_eq!(site.files, BTreeSet::from([PathBuf::from("examples/a.rs")]));
        assert_eq!(site.pages[Path::new("examples/index.md")], "# examples\n\n- [a.rs](a.rs)\n");
    }
}
