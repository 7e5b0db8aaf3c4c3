//! `dapple files passwd`: sets the password of a user.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use dapple_files::Users;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use super::error::FilesError;

/// Asks for a password, twice at a terminal, and writes it.
///
/// # Errors
///
/// The password cannot be read or used, or the file not be written.
pub(super) fn passwd(file: &Path, name: &str) -> Result<(), FilesError> {
    let password = match io::stdin().is_terminal() {
        true => {
            let first = ask(&format!("Password of {name}: ")).map_err(FilesError::Password)?;
            if first != ask("The same again: ").map_err(FilesError::Password)? {
                return Err(FilesError::PasswordTwice);
            }
            first
        }
        false => line().map_err(FilesError::Password)?,
    };
    Users::set(file, name, &password)?;
    println!("dapple: the password of {name} is set in {}; SIGHUP makes a running service read it", file.display());
    Ok(())
}

/// Reads a line from the terminal, which does not show it.
fn ask(question: &str) -> io::Result<String> {
    let terminal = io::stdin();
    eprint!("{question}");
    io::stderr().flush()?;
    let before = tcgetattr(&terminal)?;
    let mut silent = before.clone();
    silent.local_modes -= LocalModes::ECHO;
    tcsetattr(&terminal, OptionalActions::Flush, &silent)?;
    let read = line();
    tcsetattr(&terminal, OptionalActions::Flush, &before)?;
    eprintln!();
    read
}

fn line() -> io::Result<String> {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
