//! The list of a real model.

/// The parameters of ResNet-50 (He et al. 2015, table 1) in floats: 161 tensors, 25,557,032 floats.
pub fn resnet50() -> Vec<usize> {
    let mut counts = Vec::new();
    // A convolution without bias, and the scale and shift of the batch norm behind it.
    let mut convolution = |weights, channels| counts.extend([weights, channels, channels]);
    convolution(7 * 7 * 3 * 64, 64);
    let mut width = 64;
    for (blocks, middle) in [(3, 64), (4, 128), (6, 256), (3, 512)] {
        let out = 4 * middle;
        for block in 0..blocks {
            convolution(width * middle, middle);
            convolution(3 * 3 * middle * middle, middle);
            convolution(middle * out, out);
            if block == 0 {
                convolution(width * out, out);
            }
            width = out;
        }
    }
    counts.extend([1000 * width, 1000]);
    counts
}

#[cfg(test)]
mod tests {
    #[test]
    fn resnet50_has_its_size() {
        let counts = super::resnet50();
        assert_eq!((counts.len(), counts.iter().sum::<usize>()), (161, 25_557_032));
    }
}
