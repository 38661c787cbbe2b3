//! The handwritten digits: 1,797 images of 8x8 pixels, in the program itself.

use std::io::Read;

use flate2::read::GzDecoder;

/// Pixels of one image.
pub const PIXELS: usize = 64;
/// Digits there are.
pub const CLASSES: usize = 10;
/// Images kept away from training. The other 1,440 divide evenly by many numbers of ranks.
const TEST_IMAGES: usize = 357;

/// `data/README.md` names the source and the licence.
const FILE: &[u8] = include_bytes!("data/digits.csv.gz");

/// One handwritten digit.
pub struct Image {
    /// From -1, white, to 1, black, row by row.
    pub pixels: [f32; PIXELS],
    /// The digit that it shows.
    pub label: usize,
}

/// All images, in two parts.
pub struct Digits {
    /// To learn from.
    pub training: Vec<Image>,
    /// To be tested on.
    pub test: Vec<Image>,
}

impl Digits {
    /// Unpacks the file and splits it at random, always in the same way: the file is ordered by
    /// writer, and both parts should hold all of them.
    pub fn load() -> Digits {
        let mut text = String::new();
        GzDecoder::new(FILE)
            .read_to_string(&mut text)
            .expect("digits.csv.gz is part of the program");
        let mut training: Vec<Image> = text.lines().map(Image::parse).collect();
        fastrand::Rng::with_seed(1998).shuffle(&mut training);
        let test = training.split_off(training.len() - TEST_IMAGES);
        Digits { training, test }
    }
}

impl Image {
    /// Reads 64 pixels from 0 to 16, then the digit.
    fn parse(line: &str) -> Image {
        let mut numbers = line.split(',').map(|n| n.parse::<u8>().expect("a small number"));
        let mut pixels = [0.0; PIXELS];
        for pixel in &mut pixels {
            *pixel = f32::from(numbers.next().expect("64 pixels")) / 8.0 - 1.0;
        }
        let label = usize::from(numbers.next().expect("a digit"));
        assert!(label < CLASSES && numbers.next().is_none());
        Image { pixels, label }
    }
}
