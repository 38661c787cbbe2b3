//! A small network, written out by hand: three dense layers, tanh between them, softmax
//! cross-entropy at the end, and momentum SGD to train it. It knows nothing of ranks.
//!
//! Nothing in it is random or depends on time, so equal networks that take equal steps stay equal
//! to the bit. And tanh has no kinks: with ReLU, where a value close to zero may fall on either
//! side, the different rounding of sums that are made in another order would soon grow to be seen.

use std::convert::Infallible;

use super::data::{Image, CLASSES, PIXELS};

/// Width of the input, of each hidden layer, and of the output.
const WIDTHS: [usize; 4] = [PIXELS, 256, 128, CLASSES];
const LAYERS: usize = WIDTHS.len() - 1;

/// The parameters of a network, or their gradients: of each layer in turn the weights, which lie
/// input by input (`weights[input * outputs + output]`), and then the biases.
pub type Tensors = Vec<Vec<f32>>;

/// Tensors of the network's shapes, all zero.
pub fn zeros() -> Tensors {
    WIDTHS.windows(2).flat_map(|w| [vec![0.0; w[0] * w[1]], vec![0.0; w[1]]]).collect()
}

/// A network in training.
pub struct Network {
    /// The learned parameters.
    pub parameters: Tensors,
    velocity: Tensors,
}

impl Network {
    /// Random weights of the size that keeps signals alive through tanh (Glorot's), zero biases.
    pub fn random(rng: &mut fastrand::Rng) -> Network {
        let mut parameters = zeros();
        for (layer, widths) in WIDTHS.windows(2).enumerate() {
            let bound = (6.0 / (widths[0] + widths[1]) as f32).sqrt();
            parameters[2 * layer].fill_with(|| bound * (2.0 * rng.f32() - 1.0));
        }
        Network::with(parameters)
    }

    /// With these parameters, and nothing of the last steps to repeat.
    pub fn with(parameters: Tensors) -> Network {
        Network { parameters, velocity: zeros() }
    }

    /// All that a step changes: the parameters, then what the next step repeats of the last ones.
    pub fn state(&self) -> Tensors {
        [&self.parameters[..], &self.velocity].concat()
    }

    /// Becomes the network whose state this was.
    pub fn restore(&mut self, mut state: Tensors) {
        self.velocity = state.split_off(self.parameters.len());
        self.parameters = state;
    }

    /// The mean loss over `images`, with its gradient in `gradients`.
    pub fn backward(&self, images: &[&Image], gradients: &mut [Vec<f32>]) -> f32 {
        let nobody = |_, _: &[f32]| Ok::<(), Infallible>(());
        self.backward_telling(images, gradients, nobody).unwrap_or_else(|never| match never {})
    }

    /// The same; tells `made` of each gradient when it is complete, the last tensor's first.
    pub fn backward_telling<E>(
        &self,
        images: &[&Image],
        gradients: &mut [Vec<f32>],
        mut made: impl FnMut(usize, &[f32]) -> Result<(), E>,
    ) -> Result<f32, E> {
        let share = 1.0 / images.len() as f32;
        let values: Vec<_> = images.iter().map(|image| self.forward(image)).collect();
        let ends = images.iter().zip(&values).map(|(image, values)| (image, &values[LAYERS]));
        let losses = ends.clone().map(|(image, end)| share * log(end[image.label]));
        let loss = losses.fold(0.0, |loss, log| loss - log);

        // The gradient of softmax and cross-entropy together.
        let slope = |(image, end): (&&Image, &Vec<f32>)| {
            let mut slope: Vec<f32> = end.iter().map(|p| share * p).collect();
            slope[image.label] -= share;
            slope
        };
        let mut slopes: Vec<_> = ends.map(slope).collect();
        for layer in (0..LAYERS).rev() {
            let (weights, biases) = (2 * layer, 2 * layer + 1);
            gradients[weights].fill(0.0);
            gradients[biases].fill(0.0);
            for (slope, values) in slopes.iter().zip(&values) {
                add(&mut gradients[biases], 1.0, slope);
                let rows = gradients[weights].chunks_exact_mut(slope.len());
                for (row, &input) in rows.zip(&values[layer]) {
                    add(row, input, slope);
                }
            }
            made(biases, &gradients[biases])?;
            made(weights, &gradients[weights])?;
            for (slope, values) in slopes.iter_mut().zip(&values).filter(|_| layer > 0) {
                *slope = self.slope_of_input(layer, &values[layer], slope);
            }
        }
        Ok(loss)
    }

    /// One step of momentum SGD.
    pub fn step(&mut self, gradients: &[Vec<f32>], rate: f32, momentum: f32) {
        let tensors = self.parameters.iter_mut().zip(&mut self.velocity).zip(gradients);
        for ((parameters, velocity), gradient) in tensors {
            for ((p, v), g) in parameters.iter_mut().zip(velocity).zip(gradient) {
                *v = momentum * *v + g;
                *p -= rate * *v;
            }
        }
    }

    /// Mean loss over `images`, and the fraction of them that is recognised.
    pub fn evaluate(&self, images: &[Image]) -> (f64, f64) {
        let (mut loss, mut right) = (0.0, 0);
        for image in images {
            let values = self.forward(image);
            let probabilities = &values[LAYERS];
            let best = (0..CLASSES).max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b]));
            loss -= f64::from(log(probabilities[image.label]));
            right += usize::from(best == Some(image.label));
        }
        (loss / images.len() as f64, right as f64 / images.len() as f64)
    }

    /// The output of every layer, the image itself first, the probability of each digit last.
    fn forward(&self, image: &Image) -> [Vec<f32>; LAYERS + 1] {
        let mut values: [Vec<f32>; LAYERS + 1] = Default::default();
        values[0] = image.pixels.to_vec();
        for layer in 0..LAYERS {
            let mut output = self.parameters[2 * layer + 1].clone();
            let rows = self.parameters[2 * layer].chunks_exact(output.len());
            for (row, &input) in rows.zip(&values[layer]) {
                add(&mut output, input, row);
            }
            if layer + 1 < LAYERS {
                output.iter_mut().for_each(|value| *value = value.tanh());
            } else {
                softmax(&mut output);
            }
            values[layer + 1] = output;
        }
        values
    }

    /// From the slope of a layer's output to that of its input, through the tanh that made `input`.
    fn slope_of_input(&self, layer: usize, input: &[f32], slope: &[f32]) -> Vec<f32> {
        let rows = self.parameters[2 * layer].chunks_exact(slope.len());
        rows.zip(input).map(|(row, x)| (1.0 - x * x) * dot(row, slope)).collect()
    }
}

/// `to += factor * from`.
fn add(to: &mut [f32], factor: f32, from: &[f32]) {
    to.iter_mut().zip(from).for_each(|(t, f)| *t += factor * f);
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn softmax(values: &mut [f32]) {
    let highest = values.iter().copied().fold(f32::MIN, f32::max);
    values.iter_mut().for_each(|value| *value = (*value - highest).exp());
    let sum: f32 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
}

/// The logarithm of a probability, also of one that came out as 0.
fn log(probability: f32) -> f32 {
    probability.max(f32::MIN_POSITIVE).ln()
}
