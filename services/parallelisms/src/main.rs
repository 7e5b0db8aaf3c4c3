//! Parallelisms: which Debian packages are like this one, and why.

#![forbid(unsafe_code)]

mod packages;

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Reads lists of Debian packages.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Files in the format of Debian's `Packages`.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let mut packages = packages::Packages::new();
    for file in Args::parse().files {
        let input = File::open(&file).map_err(packages::ListError::from);
        match input.and_then(|input| packages::read(BufReader::new(input), &mut packages, |_| {})) {
            Ok(count) => println!("{}: {count} packages", file.display()),
            Err(error) => {
                eprintln!("parallelisms: cannot read {}: {error}", file.display());
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{} packages in all", packages.len());
    ExitCode::SUCCESS
}
