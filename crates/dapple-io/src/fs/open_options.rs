//! How a file is opened.

use std::io;
use std::path::Path;

use super::file::File;
use super::with_path;

/// Options of opening a file, as in [`std::fs::OpenOptions`], from which it can be made.
#[derive(Clone, Debug)]
pub struct OpenOptions(std::fs::OpenOptions);

impl OpenOptions {
    /// Nothing is allowed until it is set.
    #[expect(clippy::new_without_default, reason = "no option is a good default")]
    pub fn new() -> Self {
        OpenOptions(std::fs::OpenOptions::new())
    }

    /// Allows reading.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.0.read(read);
        self
    }

    /// Allows writing.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.0.write(write);
        self
    }

    /// Every write goes to the end, wherever its offset says.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.0.append(append);
        self
    }

    /// Empties the file.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.0.truncate(truncate);
        self
    }

    /// Makes the file if it does not exist.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.0.create(create);
        self
    }

    /// Makes the file, and fails if it exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.0.create_new(create_new);
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// As [`std::fs::OpenOptions::open`].
    pub async fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        let options = self.0.clone();
        let file = with_path(path, move |path| options.open(path)).await?;
        Ok(File::from_std(file))
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(options: std::fs::OpenOptions) -> Self {
        OpenOptions(options)
    }
}
