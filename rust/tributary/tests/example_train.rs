//! The training example, called as a function: it trains, its proofs can fail, and a rank that fails
//! leaves no other waiting.

#[path = "../examples/train/main.rs"]
#[allow(dead_code)]
mod train;

mod common;

use std::time::Duration;

use clap::Parser;
use train::data::Digits;
use train::dense::Dense;
use train::message::Message;
use train::network::{zeros, Network};
use train::overlap::{Overlap, Times};
use train::report::{Progress, Table};
use train::sparse::{clip, Traffic};
use train::worker::{Learner, Trained};
use train::{compare, proof, run, Failure, Options};
use tributary::{Group, SparseAllReduce, UniqueId};

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
    let few = compare::training(&options(&["--epochs", "1"]), None, &Digits::load()).unwrap();
    for (arguments, advice) in [
        (&["--epochs", "1"][..], "; try --epochs 20"),
        (&["--epochs", "1", "--lr", "0.5"], "; try --epochs 20"),
        (&["--epochs", "1", "--lr", "100"], "; try --lr 0.1"),
        (&["--epochs", "20"], "; try another --lr, or more --epochs"),
    ] {
        let proofs = proof::all(&few.trained, None, &options(arguments), &Digits::load());
        assert!(proofs[1].evidence.ends_with(advice), "{}", proofs[1].evidence);
    }
}

fn error(arguments: &str) -> String {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    match Options::try_parse_from([&["train"], &arguments[..]].concat()) {
        Err(error) => error.to_string(),
        Ok(options) => run(&options).unwrap_err().to_string(),
    }
}

#[test]
fn what_cannot_be_is_refused_before_the_training() {
    let file = std::env::temp_dir().join("tributary-no-such-folder").join("curves.svg");
    let folder = std::env::temp_dir().join(format!("tributary-{}.svg", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // A training of so many epochs would take hours.
    for (arguments, said) in [
        ("--density 0.1", "--algorithm <NAME>|--compare"),
        ("--algorithm topka --density 0", "expected a number above 0, at most 1"),
        ("--algorithm topka --density 2", "expected a number above 0, at most 1"),
        ("--compare --density NaN", "expected a number above 0, at most 1"),
        ("--warm-up 3", "--algorithm <NAME>|--compare"),
        ("--clip-norm 1", "--algorithm <NAME>|--compare"),
        ("--algorithm topka --clip-norm inf", "expected a number from 0 on"),
        ("--algorithm foo", "expected one of auto, dense, topka"),
        ("--algorithm topka --compare", "cannot be used with"),
        ("--lr 0", "expected a number above 0"),
        ("--momentum 1", "below 1"),
        ("--backend foo --ranks 100", "no backend is called \"foo\""),
        (&format!("--plot {}", file.display()), "cannot be written"),
        (&format!("--plot {}", folder.display()), "cannot be written"),
        (&format!("--compare --plot {}", file.display()), "cannot be written"),
        ("--plot curves.png", "try --plot curves.svg"),
        ("--kill-rank 2 --at-step 1", "the ranks are 0 to 1; try --kill-rank 1"),
        ("--ranks 3 --kill-rank 3", "the ranks are 0 to 2; try --kill-rank 2"),
        ("--kill-rank 0 --ranks 1", "a single rank cannot vanish and leave others; try --ranks 2"),
        ("--ranks 1 --batch 0", "among 1 rank; try --batch 1"),
        ("--kill-rank 0 --at-step 99999999999", "; try --at-step 14999999"),
        ("--at-step 7", "--kill-rank <R>"),
        ("--kill-rank 0 --at-step 7 --compare", "cannot be used with"),
        ("--processes --compare", "cannot be used with"),
        ("--processes --backend host", "leave --processes out"),
        ("--processes --ranks 2 --kill-rank 2 --backend host", "needs nccl and 2 GPUs"),
        ("--rank 0", "--processes"),
    ] {
        let error = error(&format!("--epochs 1000000 {arguments}"));
        assert!(error.contains(said), "{arguments}: {error}");
    }
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn what_is_proposed_would_be_accepted() {
    let digits = Digits::load();
    for arguments in
        ["--ranks 100", "--ranks 65 --batch 130", "--ranks 64", "--ranks 7 --batch 7000"]
    {
        let error = error(&format!("--backend host {arguments}"));
        let proposal = error.split("try ").nth(1).unwrap_or_else(|| panic!("{error}"));
        let all = format!("{arguments} {proposal}"); // of an option given twice the last one counts
        let mut words: Vec<&str> = all.split_whitespace().collect();
        while let Some(twice) = (2..words.len())
            .step_by(2)
            .find_map(|i| (0..i).step_by(2).find(|&j| words[j] == words[i]))
        {
            words.drain(twice..twice + 2);
        }
        assert!(train::options::check(&options(&words), &digits).is_ok(), "{arguments}: {error}");
    }
}

#[test]
fn who_stops_listening_causes_no_panic() {
    let Some(program) = common::example("train") else { return };
    let mut child = std::process::Command::new(program)
        .args(["--backend", "host", "--epochs", "2", "--no-reference"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(output.status.code(), Some(128 + 13), "{said}");
}

#[test]
fn what_is_proved_is_what_was_moved() {
    let digits = Digits::load();
    let arguments = "--ranks 3 --algorithm oktopk --epochs 1 --warm-up 0";
    let options = options(&arguments.split(' ').collect::<Vec<_>>());
    let mut run = compare::training(&options, Some("oktopk"), &digits).unwrap();
    // By the lines of the epochs: all bytes of a step, on the way on which more went.
    let moved = run.trained.iter().map(|rank| {
        let epoch = &rank.epochs[0];
        epoch.moved.sent.max(epoch.moved.received) / epoch.steps as f64
    });
    let moved = moved.fold(0.0, f64::max);
    let words = run.most(|traffic| traffic.words);
    assert!(moved > 4.0 * words, "there is more than entries: {moved} and {words}");
    let sent = |run: &compare::Run| {
        let proofs = proof::all(&run.trained, None, &options, &digits);
        proofs.into_iter().find(|proof| proof.claim == "less is sent").unwrap()
    };
    assert!(proof::remarks(&run.trained, &options).is_empty());
    let proof = sent(&run);
    assert!(
        proof.holds && proof.evidence.starts_with(&format!("{moved:.0} bytes per rank and step"))
    );
    // It can fail: two ranks move little, and one moves more than all of a dense allreduce.
    run.trained[1].epochs[0].moved.received = 1e9;
    assert!(!sent(&run).holds);
}

#[test]
fn where_nothing_is_to_be_saved_nothing_is_proved_about_it() {
    let digits = Digits::load();
    for arguments in ["--ranks 2 --algorithm dense", "--ranks 1 --algorithm topka"] {
        let arguments = format!("{arguments} --epochs 1");
        let options = options(&arguments.split(' ').collect::<Vec<_>>());
        let run = compare::training(&options, options.algorithm.as_deref(), &digits).unwrap();
        let proofs = proof::all(&run.trained, None, &options, &digits);
        assert!(proofs.iter().all(|proof| proof.claim != "less is sent"), "{arguments}");
        let remarks = proof::remarks(&run.trained, &options);
        assert!(remarks.len() == 1 && remarks[0].ends_with(": nothing is saved"), "{remarks:?}");
    }
}

#[test]
fn a_rank_that_vanishes_stops_no_training() {
    // All proofs hold: those that go on are equal and have learned, as much as a single rank.
    let vanish = "--ranks 3 --kill-rank 0 --at-step 75";
    let sparse = format!("{vanish} --algorithm topka");
    let (keep, drop) = (format!("{sparse} --residuals keep"), format!("{sparse} --residuals drop"));
    // Also where the density would change next.
    let warm_up = "--ranks 3 --kill-rank 1 --at-step 30 --algorithm topka".to_owned();
    for arguments in [vanish.to_owned(), keep, drop, warm_up] {
        let options = options(&arguments.split(' ').collect::<Vec<_>>());
        assert!(run(&options).unwrap(), "{arguments}");
    }
}

#[test]
fn the_residuals_of_those_that_go_on_are_kept_or_dropped() {
    let digits = Digits::load();
    let train = |arguments: &str| {
        let arguments = format!("--ranks 3 --algorithm topka --epochs 1 {arguments}");
        let options = options(&arguments.split(' ').collect::<Vec<_>>());
        compare::training(&options, Some("topka"), &digits).unwrap().trained
    };
    let bits = |trained: &[Trained]| trained[0].network.parameters.concat();
    let kept = train("--kill-rank 2 --at-step 7 --residuals keep");
    let dropped = train("--kill-rank 2 --at-step 7 --residuals drop");
    assert_eq!((kept.len(), dropped.len()), (2, 2));
    assert_ne!(bits(&kept), bits(&dropped));
    assert_eq!(bits(&kept), bits(&train("--kill-rank 2 --at-step 7")));
    // A proof is of the steps; a remark tells what the vanishing cost.
    for (residuals, said) in [("keep", "kept theirs"), ("drop", "dropped theirs")] {
        let options =
            options(&["--algorithm", "topka", "--kill-rank", "1", "--residuals", residuals]);
        let remarks = proof::remarks(&kept, &options);
        assert!(remarks.len() == 1 && remarks[0].contains(said), "{remarks:?}");
    }
}

#[test]
fn ranks_that_are_not_equally_far_go_on_as_one() {
    let (digits, few) = (Digits::load(), options(&["--ranks", "1", "--epochs", "3"]));
    let progress = Progress::new(3, 15, Table::Last);
    let group = |ranks| Group::with_options(ranks, &tributary::Options::new().backend("host"));
    // Within an epoch of 15 steps, at its end, after it.
    let reference = compare::training(&few, None, &digits).unwrap().trained.pop();
    for far in [[19, 20], [30, 29], [31, 14], [14, 31]] {
        let trained = group(2).unwrap().run(|communicator| -> Result<Trained, Failure> {
            let rank = communicator.rank();
            let mut learner = Learner::new(0, &digits, &few);
            let mut alone = group(1)?.split()?;
            learner.train(&mut alone[0], &progress, |taken| Ok(taken < far[rank]))?;
            learner.train(communicator, &progress, |_| Ok(true))?;
            Ok(learner.finish())
        });
        let trained = trained.unwrap();
        let numbers: Vec<usize> = trained[0].epochs.iter().map(|epoch| epoch.number).collect();
        assert_eq!(numbers, [1, 2, 3], "{far:?}");
        let proofs = proof::all(&trained, reference.as_ref(), &few, &digits);
        for proof in [&proofs[0], &proofs[2]] {
            assert!(proof.holds, "{far:?}: {}: {}", proof.claim, proof.evidence);
        }
    }
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
    // All proofs hold: within a point of dense, nothing is lost, less is sent. The defaults are those
    // of dense gradients: 20 epochs, momentum 0.9.
    for arguments in ["--ranks 2 --algorithm topka", "--ranks 4 --algorithm topka --seed 2"] {
        let options = options(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!((options.epochs, options.momentum, options.density()), (20, 0.9, 0.01));
        assert!(run(&options).unwrap(), "{arguments}");
    }
}

#[test]
fn the_density_falls_by_the_same_factor_from_epoch_to_epoch() {
    let densities = |arguments: &str| -> Vec<f64> {
        let arguments = format!("--algorithm topka {arguments}");
        let options = options(&arguments.split(' ').collect::<Vec<_>>());
        (0..6).map(|epoch| options.density_in(epoch)).collect()
    };
    // The paper: 25 %, 6.25 %, 1.5625 %, 0.4 %, 0.1 %.
    let paper = [0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001];
    for (density, paper) in densities("--density 0.001 --warm-up 4").iter().zip(paper) {
        assert!((density / paper - 1.0).abs() < 0.02, "{density}, not {paper}");
    }
    assert_eq!(densities("--density 0.01 --warm-up 0"), [0.01; 6]);
    assert_eq!(densities("--warm-up 2")[2..], [0.01; 4]);

    let arguments = "--algorithm topka --epochs 3 --warm-up 1 --density 0.01";
    let options = options(&arguments.split(' ').collect::<Vec<_>>());
    let run = compare::training(&options, Some("topka"), &Digits::load()).unwrap();
    let received: Vec<f64> = run.trained[0].epochs.iter().map(|e| e.moved.received).collect();
    assert!(received[0] > 9.0 * received[1] && received[1] == received[2], "{received:?}");
}

#[test]
fn gradients_are_clipped_to_a_norm() {
    for (limit, expected) in [(5.0, [3.0, -4.0]), (2.5, [1.5, -2.0]), (1e30, [3.0, -4.0])] {
        let mut gradients = [vec![3.0], vec![], vec![0.0, -4.0]];
        clip(&mut gradients, limit);
        assert_eq!(gradients, [vec![expected[0]], vec![], vec![0.0, expected[1]]]);
    }
}

#[test]
fn momentum_in_the_exchange_is_that_of_the_steps_where_nothing_waits() {
    let digits = Digits::load();
    let loss = |name: Option<&str>, momentum: &str| {
        let arguments = ["--epochs", "4", "--momentum", momentum, "--compare", "--clip-norm", "0"];
        let options = options(&arguments).with_algorithm(name);
        let trained = compare::training(&options, name, &digits).unwrap().trained;
        trained[0].network.evaluate(&digits.training).0
    };
    // Gradients are rounded there, so not to the bit.
    let same = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-3;
    for momentum in ["0.9", "0"] {
        let (sparse, dense) = (loss(Some("dense"), momentum), loss(None, momentum));
        assert!(same(sparse, dense), "momentum {momentum}: {sparse}, not {dense}");
    }
    assert!(!same(loss(None, "0.9"), loss(None, "0")));
}

/// Run 0 is of dense buckets; all others are of an algorithm.
fn all_move_and_lose_nothing(runs: &[compare::Run]) {
    for run in &runs[1..] {
        for traffic in run.trained.iter().map(|rank| rank.traffic.as_ref().unwrap()) {
            assert_eq!(traffic.leak, 0.0, "{}", run.name);
            assert!(traffic.words > 0.0, "{}", run.name);
        }
        assert!(run.bytes() > 0.0, "{}", run.name);
    }
    // Buckets have padding, and the algorithm `dense` adds headers.
    let dense = runs[0].trained[0].dense_bytes(3);
    for run in [&runs[0], runs.iter().find(|run| run.name == "dense").unwrap()] {
        let found = run.bytes();
        assert!(found >= dense && found < 1.001 * dense, "{}: {found}, not {dense}", run.name);
    }
}

#[test]
fn no_algorithm_loses_anything() {
    let file = std::env::temp_dir().join(format!("tributary-compare-{}.svg", std::process::id()));
    let plot = file.to_str().expect("a plain path");
    let arguments = ["--ranks", "3", "--compare", "--epochs", "2", "--warm-up", "1"];
    let options = options(&[&arguments[..], &["--plot", plot]].concat());
    let mut runs = compare::trainings(&options, &Digits::load()).unwrap();
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    assert_eq!(names[0], "(buckets)");
    assert!(names[1..].iter().copied().eq(SparseAllReduce::algorithms()));
    all_move_and_lose_nothing(&runs);
    assert!(compare::show(&runs, &options).unwrap());
    let drawing = std::fs::read_to_string(&file).unwrap();
    for name in SparseAllReduce::algorithms() {
        assert!(drawing.contains(name), "{name}");
    }
    assert!(drawing.contains("training loss relative to (buckets)"));
    for run in &runs {
        let row = compare::row(run);
        let (time, bytes) = (format!("{:.2}", 1e3 * run.seconds()), format!("{:.0}", run.bytes()));
        let columns: Vec<&str> = row.split_whitespace().collect();
        assert!(run.seconds() > 0.0 && columns[4..6] == [time, bytes], "{row}");
    }
    // A loss is seen, on any rank and however small.
    for leak in [f64::MIN_POSITIVE, f64::NAN] {
        runs[1].trained[2].traffic.as_mut().unwrap().leak = leak;
        assert!(!compare::show(&runs, &options).unwrap());
        let proofs = proof::all(&runs[1].trained, None, &options, &Digits::load());
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
fn a_gradient_is_told_of_when_it_is_complete() {
    let digits = Digits::load();
    let network = Network::random(&mut fastrand::Rng::with_seed(2));
    let images: Vec<_> = digits.test.iter().take(3).collect();
    let (mut gradients, mut expected) = (zeros(), zeros());
    gradients.iter_mut().for_each(|gradient| gradient.fill(f32::NAN));
    network.backward(&images, &mut expected);
    let mut told = Vec::new();
    let made = |i: usize, gradient: &[f32]| {
        assert_eq!(gradient, expected[i], "gradient {i}");
        told.push(i);
        if i == 0 {
            Err("the last")
        } else {
            Ok(())
        }
    };
    assert_eq!(network.backward_telling(&images, &mut gradients, made), Err("the last"));
    assert_eq!(told, [5, 4, 3, 2, 1, 0]);
    assert_eq!(gradients, expected);
}

#[test]
fn what_a_process_says_is_what_is_heard() {
    let hear = |message: &Message| {
        let line = message.to_string();
        assert!(!line.contains('\n'));
        let heard = Message::parse(&line).unwrap();
        assert_eq!(heard.to_string(), line);
        // Less or more is nothing.
        let end = line.rfind(' ').unwrap_or(1);
        assert!(Message::parse(&line[..end]).is_none() || line.starts_with("failed"));
        assert!(Message::parse(&format!("{line} 7")).is_none() || line.starts_with("failed"));
        heard
    };
    let id = UniqueId::of("host").unwrap();
    assert!(matches!(hear(&Message::Id(id.clone())), Message::Id(heard) if heard == id));
    assert!(matches!(hear(&Message::Reached), Message::Reached));
    let why = "rank 1 failed:\n  no more  images";
    assert!(matches!(hear(&Message::Failed(why.into())), Message::Failed(heard) if heard == why));
    assert!(Message::parse("perhaps").is_none() && Message::parse("").is_none());

    let digits = Digits::load();
    let arguments = ["--ranks", "2", "--epochs", "2", "--algorithm", "topka"];
    for name in [None, Some("topka")] {
        let mut run = compare::training(&options(&arguments), name, &digits).unwrap();
        let mut said = run.trained.pop().unwrap();
        said.network.parameters[5][..3].copy_from_slice(&[-0.0, f32::MIN_POSITIVE, f32::INFINITY]);
        said.epochs[1].accuracy = 1.0 / 3.0;
        let what = |trained: &Trained| {
            let bits = trained.network.parameters.iter().flatten().map(|value| value.to_bits());
            let epochs = trained.epochs.iter();
            let epochs = epochs.map(|e| (e.number, e.steps, e.loss, e.accuracy, e.communicating));
            let moved = trained.epochs.iter().map(|e| (e.moved.sent, e.moved.received, e.step));
            let times = trained.times.clone();
            let traffic = trained.traffic.clone();
            let traffic =
                traffic.map(|Traffic { algorithm, words, leak }| (algorithm, words, leak));
            let (epochs, moved): (Vec<_>, Vec<_>) = (epochs.collect(), moved.collect());
            (bits.collect::<Vec<_>>(), epochs, moved, traffic, times)
        };
        let before = what(&said);
        let Message::Trained(heard) = hear(&Message::Trained(Box::new(said))) else { panic!() };
        assert_eq!(what(&heard), before);
    }
}

#[test]
fn what_is_hidden_of_the_communication_is_what_was_measured() {
    let times = |steps: [u64; 3], exposed: [u64; 3], alone: &[u64]| {
        let [steps, exposed, alone] = [&steps, &exposed, alone]
            .map(|all| all.iter().map(|&time| Duration::from_millis(time)).collect());
        Times { steps, exposed, alone }
    };
    // Of each step the slowest rank, and what is left where the last gradient was made.
    let (a, b) = (times([4, 8, 6], [1, 5, 2], &[8]), times([5, 7, 9], [3, 2, 2], &[4]));
    assert_eq!(
        Overlap::of(&[&a, &b]).unwrap().to_string(),
        "50.0 % of the communication is hidden: alone it takes 4.000 ms, and 2.000 ms of a step's \
         8.000 ms are left after the last gradient (medians)"
    );
    let longer = times([9; 3], [6; 3], &[4]);
    assert_eq!(Overlap::of(&[&longer, &longer]).unwrap().hidden(), -0.5);
    assert_eq!(Overlap::of(&[&a, &times([1; 3], [1; 3], &[])]), None);
    assert_eq!(Overlap::of(&[&a]), None);

    let options = options(&["--ranks", "2", "--epochs", "2"]);
    let run = compare::training(&options, None, &Digits::load()).unwrap();
    for Times { steps, exposed, alone } in run.trained.iter().map(|rank| &rank.times) {
        assert_eq!((steps.len(), exposed.len(), alone.len()), (27, 27, 3));
        assert!(exposed.iter().zip(steps).all(|(left, step)| left < step));
    }
    let remarks = proof::remarks(&run.trained, &options);
    let figures: Vec<f64> =
        remarks[0].split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [hidden, alone, exposed, step] = figures[..] else { panic!("{remarks:?}") };
    assert!(remarks.len() == 1 && figures.iter().all(|figure| figure.is_finite()), "{remarks:?}");
    assert!(alone > 0.0 && 0.0 < exposed && exposed < step, "{remarks:?}");
    // Figures are rounded. No median is above twice the mean, which is of one of two ranks.
    let rounding = 0.1 + 0.1 * (1.0 + exposed / alone) / alone;
    assert!((hidden - 100.0 * (1.0 - exposed / alone)).abs() < rounding, "{remarks:?}");
    assert!(step < 5e3 * run.seconds(), "{remarks:?}, {} s", run.seconds());
}

#[test]
fn one_wrong_bit_is_found() {
    let digits = Digits::load();
    let random = || Trained {
        network: Network::random(&mut fastrand::Rng::with_seed(1)),
        epochs: Vec::new(),
        traffic: None,
        times: Times::default(),
    };
    let holds = |ranks: &[Trained]| -> Vec<bool> {
        let proofs = proof::all(ranks, Some(&random()), &options(&[]), &digits);
        proofs.iter().map(|proof| proof.holds).collect()
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
    let group = Group::with_options(3, &tributary::Options::new().backend("host")).unwrap();
    let failure = group.run(|communicator| -> Result<(), Failure> {
        let rank = communicator.rank();
        let mut tensors = vec![vec![rank as f32; 1000], vec![1.0]];
        let mut dense = Dense::new(communicator, &tensors)?;
        for step in 0.. {
            dense.average(&mut tensors, |tensors, made| {
                made(0, &tensors[0])?;
                if rank == 1 && step == 5 {
                    return Err("no more images".into());
                }
                made(1, &tensors[1])
            })?;
            assert_eq!(tensors, [vec![1.0; 1000], vec![1.0]]);
        }
        unreachable!("the loop has no end");
    });
    assert_eq!(failure.unwrap_err().to_string(), "no more images");
}
