//! Pictures: decoded within limits, scaled, and written in a format that the device can show.

use std::error::Error;
use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, ImageResult, Limits, Rgba, RgbaImage, imageops};

use crate::fit::Fit;

type Encoded = (ImageFormat, Vec<u8>);

/// A picture for the device; `None` if the source is as good.
///
/// # Errors
/// The reason why the picture cannot be scaled.
pub(crate) fn scaled(source: &[u8], fit: &Fit) -> Result<Option<Encoded>, Box<dyn Error>> {
    let (format, image) = decoded(source)?;
    let is_large = image.width() > fit.width || image.height() > fit.height;
    let must_change = is_large || fit.is_gray || !fit.formats.contains(&format);
    // An average of pixels: as good as better filters for a picture that gets much smaller, and many times faster.
    let image = if is_large { image.thumbnail(fit.width, fit.height) } else { image };
    let best = smallest(if fit.is_gray { image.grayscale() } else { image }, fit)?;
    let (format, bytes) = best.ok_or("the device can show no format of pictures")?;
    Ok((must_change || bytes.len() < source.len()).then_some((format, bytes)))
}

/// The picture as its author meant it to be seen; of an animation, the first frame.
fn decoded(source: &[u8]) -> ImageResult<(ImageFormat, DynamicImage)> {
    let mut reader = ImageReader::new(Cursor::new(source)).with_guessed_format()?;
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(SIDE_MAX), Some(SIDE_MAX));
    limits.max_alloc = Some(MEMORY_MAX);
    reader.limits(limits.clone());
    let format = reader.format().unwrap_or(ImageFormat::Jpeg);
    let mut decoder = reader.into_decoder()?;
    // Before any memory is taken for the pixels.
    limits.reserve(decoder.total_bytes())?;
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder)?;
    image.apply_orientation(orientation);
    Ok((format, image))
}

/// The shortest of the formats that the device can show.
fn smallest(image: DynamicImage, fit: &Fit) -> ImageResult<Option<Encoded>> {
    let is_opaque = !image.color().has_alpha() || image.to_rgba8().pixels().all(|pixel| pixel.0[3] == u8::MAX);
    // A JPEG has no transparency, and a GIF 256 colors, so these are then only for devices that have no other.
    let is_last = |format: &ImageFormat| *format == ImageFormat::Gif || (*format == ImageFormat::Jpeg && !is_opaque);
    let all_are_last = fit.formats.iter().all(is_last);
    let mut best: Option<Encoded> = None;
    for format in fit.formats.iter().filter(|format| all_are_last || !is_last(format)) {
        let whole: DynamicImage = match (format, is_opaque) {
            (ImageFormat::Gif, _) => image.to_rgba8().into(),
            (_, true) if fit.is_gray => image.to_luma8().into(),
            (_, true) => image.to_rgb8().into(),
            (ImageFormat::Jpeg, false) => on_white(&image),
            (_, false) => image.to_rgba8().into(),
        };
        let mut bytes = Cursor::new(Vec::new());
        match format {
            ImageFormat::Jpeg => whole.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, fit.quality))?,
            _ => whole.write_to(&mut bytes, *format)?,
        }
        let bytes = bytes.into_inner();
        if best.as_ref().is_none_or(|(_, least)| bytes.len() < least.len()) {
            best = Some((*format, bytes));
        }
    }
    Ok(best)
}

fn on_white(image: &DynamicImage) -> DynamicImage {
    let mut white = RgbaImage::from_pixel(image.width(), image.height(), Rgba([255; 4]));
    imageops::overlay(&mut white, image, 0, 0);
    DynamicImage::from(white).to_rgb8().into()
}

/// Of a source, in pixels.
const SIDE_MAX: u32 = 16_384;
/// For the pixels of one source, in bytes: 32 megapixels in colors.
const MEMORY_MAX: u64 = 96 << 20;
