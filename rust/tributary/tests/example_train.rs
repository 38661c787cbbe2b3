//! The training example, called as a function: it trains, its proofs can fail, and a rank that fails
//! leaves no other waiting.

#[path = "../examples/train/main.rs"]
#[allow(dead_code)]
mod train;

use clap::Parser;
use train::data::Digits;
use train::exchange::Exchange;
use train::network::{zeros, Network};
use train::ranks::on_every_rank;
use train::worker::Trained;
use train::{compare, proof, run, Failure, Options};
use tributary::{Group, SparseAllReduce};

fn options(arguments: &[&str]) -> Options {
    Options::parse_from([&["train", "--backend", "host"], arguments].concat())
}

#[test]
fn three_ranks_learn_what_one_learns() {
    let file = std::env::temp_dir().join(format!("tributary-train-{}.svg", std::process::id()));
    let plot = file.to_str().expect("a plain path");
    assert!(run(&options(&["--ranks", "3", "--epochs", "6", "--plot", plot])).unwrap());
    let drawing = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(drawing.contains("training loss") && drawing.contains("3 ranks"));
}

#[test]
fn too_little_training_is_no_success() {
    assert!(!run(&options(&["--ranks", "2", "--epochs", "1", "--no-reference"])).unwrap());
}

#[test]
fn a_batch_that_cannot_be_divided_is_refused() {
    let error = |arguments: &[&str]| run(&options(arguments)).unwrap_err().to_string();
    assert!(error(&["--ranks", "7"]).contains("--batch 98"));
    assert!(error(&["--ranks", "7", "--batch", "7000"]).contains("--batch 1435"));
    assert!(error(&["--ranks", "3", "--batch", "0"]).contains("--batch 3"));
    assert!(error(&["--ranks", "0"]).contains("at least one rank"));
}

#[test]
fn sparse_gradients_teach_as_much_as_dense_ones() {
    // All proofs hold: within a point of dense, nothing is lost, less is sent.
    let arguments =
        "--ranks 2 --algorithm topka --density 0.01 --momentum 0.5 --lr 0.2 --epochs 20";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    assert!(run(&options(&arguments)).unwrap());
}

#[test]
fn no_algorithm_loses_anything() {
    let file = std::env::temp_dir().join(format!("tributary-compare-{}.svg", std::process::id()));
    let plot = file.to_str().expect("a plain path");
    let options = options(&["--ranks", "3", "--compare", "--epochs", "1", "--plot", plot]);
    let mut runs = compare::trainings(&options, &Digits::load()).unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names[0], "(list)");
    assert!(names[1..].iter().copied().eq(SparseAllReduce::algorithms()));
    for run in &runs[1..] {
        for traffic in run.trained.iter().map(|rank| rank.traffic.as_ref().unwrap()) {
            assert_eq!(traffic.leak, 0.0, "{}", run.name);
            assert!(traffic.words > 0.0 && traffic.dense_words > 0.0, "{}", run.name);
        }
    }
    assert!(compare::show(&runs, &options).unwrap());
    let drawing = std::fs::read_to_string(&file).unwrap();
    for name in SparseAllReduce::algorithms() {
        assert!(drawing.contains(name), "{name}");
    }
    // A loss is seen, on any rank and however small.
    for leak in [f64::MIN_POSITIVE, f64::NAN] {
        runs[1].trained[2].traffic.as_mut().unwrap().leak = leak;
        assert!(!compare::show(&runs, &options).unwrap());
        let proofs = proof::all(&runs[1].trained, None, &Digits::load());
        assert!(!proofs.iter().find(|proof| proof.claim.contains("is lost")).unwrap().holds);
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn gradients_are_slopes_of_the_loss() {
    const STEP: f32 = 0.01;
    let digits = Digits::load();
    let mut network = Network::random(&mut fastrand::Rng::with_seed(2));
    let images: Vec<_> = digits.test.iter().take(8).collect();
    let mut gradients = zeros();
    network.backward(&images, &mut gradients);
    let mut unused = zeros();
    for (tensor, place) in [(0, 9000), (1, 100), (2, 20_000), (3, 50), (4, 777), (5, 3)] {
        let mut loss_at = |change: f32| {
            network.parameters[tensor][place] += change;
            network.backward(&images, &mut unused)
        };
        let slope = (loss_at(STEP) - loss_at(-2.0 * STEP)) / (2.0 * STEP);
        loss_at(STEP);
        let gradient = gradients[tensor][place];
        assert!((slope - gradient).abs() < 1e-4, "tensor {tensor}: {gradient}, not {slope}");
        assert!(gradient.abs() > 1e-3, "tensor {tensor}: {gradient} shows nothing");
    }
}

#[test]
fn one_wrong_bit_is_found() {
    let digits = Digits::load();
    let random = || Trained {
        network: Network::random(&mut fastrand::Rng::with_seed(1)),
        epochs: Vec::new(),
        traffic: None,
    };
    let holds = |ranks: &[Trained]| -> Vec<bool> {
        proof::all(ranks, Some(&random()), &digits).iter().map(|proof| proof.holds).collect()
    };
    let mut ranks = [random(), random(), random()];
    assert_eq!(holds(&ranks), [true, false, true]);
    let bias = &mut ranks[2].network.parameters[1][7];
    *bias = -*bias;
    assert_eq!(holds(&ranks), [false, false, true]);
    ranks[0].network.parameters[5][0] += 0.01;
    assert_eq!(holds(&ranks), [false, false, false]);
}

#[test]
fn a_rank_that_fails_frees_the_others() {
    for panics in [false, true] {
        let settings = tributary::Options::new().backend("host");
        let group = Group::with_options(3, &settings).unwrap();
        let failure = on_every_rank(group, |communicator| -> Result<(), Failure> {
            let rank = communicator.rank();
            let mut tensors = vec![vec![rank as f32; 1000], vec![1.0]];
            let mut exchange = Exchange::new(communicator, &tensors)?;
            for step in 0.. {
                if rank == 1 && step == 5 {
                    assert!(!panics, "on purpose");
                    return Err("no more images".into());
                }
                exchange.average(&mut tensors)?;
                assert_eq!(tensors, [vec![1.0; 1000], vec![1.0]]);
            }
            unreachable!("the loop has no end");
        });
        let expected = if panics { "rank 1 panicked" } else { "rank 1: no more images" };
        assert_eq!(failure.unwrap_err().to_string(), expected);
    }
}
