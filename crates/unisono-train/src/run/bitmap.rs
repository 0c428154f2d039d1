//! A picture in memory for `plotters`, with a font of its own: every machine draws the same pixels, whatever fonts it has.

use font8x8::{BASIC_FONTS, UnicodeFonts};
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, BackendTextStyle, DrawingBackend, DrawingErrorKind};
use std::convert::Infallible;

/// Pixels of a character of the font.
const GLYPH: i32 = 8;

type Result<T> = std::result::Result<T, DrawingErrorKind<Infallible>>;

/// Pixels of three bytes, row by row.
pub(super) struct Bitmap {
    size: (u32, u32),
    pixels: Vec<u8>,
}

impl Bitmap {
    /// A white one, [width, height].
    pub(super) fn white(size: (u32, u32)) -> Bitmap {
        Bitmap {
            size,
            pixels: vec![255; 3 * size.0 as usize * size.1 as usize],
        }
    }

    /// The contents of a PNG file.
    ///
    /// # Errors
    /// What the encoder says.
    pub(super) fn png(&self) -> std::result::Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.size.0, self.size.1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
        writer
            .write_image_data(&self.pixels)
            .map_err(|error| error.to_string())?;
        writer.finish().map_err(|error| error.to_string())?;
        Ok(bytes)
    }
}

impl DrawingBackend for &mut Bitmap {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Result<()> {
        Ok(())
    }

    fn present(&mut self) -> Result<()> {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Result<()> {
        let (width, height) = (self.size.0 as i32, self.size.1 as i32);
        if (0..width).contains(&x) && (0..height).contains(&y) {
            let at = 3 * (y as usize * width as usize + x as usize);
            let (r, g, b) = color.rgb;
            for (pixel, part) in self.pixels[at..at + 3].iter_mut().zip([r, g, b]) {
                let mixed = f64::from(*pixel) * (1.0 - color.alpha) + f64::from(part) * color.alpha;
                *pixel = mixed.round() as u8;
            }
        }
        Ok(())
    }

    /// Text along the horizontal; what is not ASCII is left blank.
    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Result<()> {
        let (width, height) = self.estimate_text_size(text, style)?;
        let (width, height) = (width as i32, height as i32);
        let left = at.0
            - match style.anchor().h_pos {
                HPos::Left => 0,
                HPos::Center => width / 2,
                HPos::Right => width,
            };
        let top = at.1
            - match style.anchor().v_pos {
                VPos::Top => 0,
                VPos::Center => height / 2,
                VPos::Bottom => height,
            };
        for (place, character) in text.chars().enumerate() {
            let glyph = BASIC_FONTS.get(character).unwrap_or_default();
            for (row, bits) in (0..).zip(glyph) {
                for column in (0..GLYPH).filter(|column| bits >> column & 1 == 1) {
                    let x = left + GLYPH * place as i32 + column;
                    self.draw_pixel((x, top + row), style.color())?;
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(&self, text: &str, _style: &S) -> Result<(u32, u32)> {
        Ok((GLYPH as u32 * text.chars().count() as u32, GLYPH as u32))
    }
}
