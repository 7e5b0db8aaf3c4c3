//! Compresses pages, each in a color of its own and in small pieces, so that no worker is busy for
//! long (C9).

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use dapple::{Colored, yield_now};
use dapple_http::coding::Coding;
use flate2::write::GzEncoder;
use tracing::{debug, warn};

use super::library::Library;
use super::pages::{Content, Page, Shard};

/// One page to compress. The waiting requests always learn how it ends.
pub(crate) struct Job {
    pub(crate) page: Arc<Page>,
    pub(crate) coding: Coding,
    pub(crate) library: Arc<Library>,
    /// The shard and key of the page in the cache.
    pub(crate) shard: Colored<Shard>,
    pub(crate) hash: u64,
    pub(crate) key: Arc<[u8]>,
    /// The shard and key of the requests that wait for the result.
    pub(crate) jobs: Colored<Shard>,
    pub(crate) job_hash: u64,
    pub(crate) job_key: Arc<[u8]>,
}

/// One of the places for tasks that compress.
pub(crate) struct CompressPermit(Arc<AtomicUsize>);

impl CompressPermit {
    /// Takes a place, if one of `places` is free.
    pub(crate) fn enter(taken: &Arc<AtomicUsize>, places: usize) -> Option<CompressPermit> {
        let place = CompressPermit(taken.clone());
        // The drop takes back the surplus of the count.
        (taken.fetch_add(1, Ordering::Relaxed) < places).then_some(place)
    }
}

impl Drop for CompressPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Job {
    /// Compresses the page, hangs the result on it, and answers the waiting tasks.
    pub(crate) async fn run(self, _place: CompressPermit) {
        let made = match compress(&self.page.body, self.coding).await {
            Ok(body) if body.len() < self.page.body.len() => Some(Arc::new(self.result(body))),
            Ok(_) => None,
            Err(error) => return warn!(%error, "cannot compress a page"),
        };
        debug!(file = %self.key.escape_ascii(), coding = self.coding.name(), "a page was compressed");
        let Some(made) = self.page.variants.keep(self.coding, made) else {
            return;
        };
        let weight = made.body.len() as u64;
        self.shard.with(|shard| shard.grew(self.hash, &self.key, &self.page, weight)).await;
        self.jobs.with(|jobs| jobs.answer(self.job_hash, &self.job_key, &Content::Page(made))).await;
    }

    fn result(&self, body: Vec<u8>) -> Page {
        let plain = &self.page.meta;
        let inner = plain.etag.to_str().unwrap_or_default().trim_matches('"');
        let tag = format!("{inner}-{}{REVISION}", self.coding.name());
        let meta = self.library.labels.coded(&self.key, plain, self.coding, &tag, plain.modified_s);
        Page::new(self.page.state, meta, Bytes::from(body))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let (hash, key) = (self.job_hash, self.job_key.clone());
        // Has no effect if they were answered already.
        self.jobs.post(move |jobs| jobs.load_failed(hash, &key));
    }
}

/// Compresses in pieces, and lets other work run between them.
async fn compress(content: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    let mut encoder = Encoder::new(coding, content.len())?;
    for piece in content.chunks(PIECE_LEN) {
        encoder.write(piece)?;
        yield_now().await;
    }
    let mut compressed = encoder.finish()?;
    compressed.shrink_to_fit();
    Ok(compressed)
}

enum Encoder {
    Br(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Encoder {
    fn new(coding: Coding, len: usize) -> io::Result<Encoder> {
        let out = Vec::with_capacity(len / 4);
        Ok(match coding {
            Coding::Br => Encoder::Br(Box::new(brotli::CompressorWriter::new(out, PIECE_LEN, BR_QUALITY, BR_WINDOW))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_LEVEL)?;
                encoder.set_pledged_src_size(Some(len as u64))?;
                Encoder::Zstd(encoder)
            }
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(out, flate2::Compression::new(GZIP_LEVEL))),
        })
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Encoder::Br(encoder) => encoder.write_all(piece),
            Encoder::Zstd(encoder) => encoder.write_all(piece),
            Encoder::Gzip(encoder) => encoder.write_all(piece),
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Encoder::Br(encoder) => Ok(encoder.into_inner()),
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Gzip(encoder) => encoder.finish(),
        }
    }
}

/// How many bytes are compressed at a time: half a millisecond of work.
const PIECE_LEN: usize = 16 * 1024;

/// A page is compressed once and sent many times, so some effort pays; the last few percent would
/// take ten times as long.
const BR_QUALITY: u32 = 5;
const ZSTD_LEVEL: i32 = 6;
const GZIP_LEVEL: u32 = 6;

/// 256 KiB, as a logarithm.
const BR_WINDOW: u32 = 18;

/// Part of the entity tags: other settings, or another version of a library, produce other bytes.
const REVISION: &str = "1";

#[cfg(test)]
mod tests {
    use std::io::Read;

    use dapple_http::coding::Coding;

    use super::compress;

    fn decompress(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Coding::Br => brotli::Decompressor::new(bytes, 4_096).read_to_end(&mut content).unwrap(),
            Coding::Zstd => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_end(&mut content).unwrap(),
            Coding::Gzip => flate2::read::GzDecoder::new(bytes).read_to_end(&mut content).unwrap(),
        };
        content
    }

    #[test]
    fn compressed_pages_decompress_to_the_original() {
        let text: Vec<u8> = (0..50_000).flat_map(|number: u32| format!("line {number}\n").into_bytes()).collect();
        let runtime = dapple::builder().workers(1).build().unwrap();
        for coding in Coding::ALL {
            for len in [0, 1, 16 * 1024, 16 * 1024 + 1, text.len()] {
                let compressed = runtime.block_on(compress(&text[..len], coding)).unwrap();
                assert_eq!(decompress(coding, &compressed), &text[..len], "{coding:?} {len}");
                assert!(len < 10_000 || compressed.len() < len / 3, "{coding:?} {len}: {}", compressed.len());
            }
        }
    }
}
