//! The setting of a run: the backend and the number of ranks.

use std::env;
use std::process::exit;
use std::str::FromStr;

use tributary::Backend;

use crate::{Call, Result, MEMCPY, NCCL};

/// A backend and a number of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The backend.
    pub backend: Backend,
    /// The number of ranks; rank i is on device i.
    pub ranks: usize,
}

impl Setting {
    /// Reads the setting from the environment.
    pub fn from_env() -> Result<Setting> {
        let backend = match env::var("TRIBUTARY_BENCH_BACKEND") {
            Ok(name) => Backend::find(&name).ok_or_else(|| {
                let names: Vec<&str> = Backend::all().into_iter().map(Backend::name).collect();
                format!("TRIBUTARY_BENCH_BACKEND={name}: this build has {}", names.join(", "))
            })?,
            Err(_) => Backend::all()
                .into_iter()
                .find(|backend| backend.devices().is_ok_and(|count| count > 0))
                .ok_or("no backend has a device")?,
        };
        let devices = backend.devices()?;
        if devices == 0 {
            return Err(format!("{backend} has no device here").into());
        }
        let ranks = match env::var("TRIBUTARY_BENCH_RANKS") {
            Ok(number) => number
                .parse()
                .ok()
                .filter(|ranks| (1..=devices).contains(ranks))
                .ok_or_else(|| format!("TRIBUTARY_BENCH_RANKS={number}: 1 to {devices} work"))?,
            Err(_) if backend.name() == "host" => 2,
            Err(_) => devices,
        };
        Ok(Setting { backend, ranks })
    }

    /// True if the ranks are GPUs.
    pub fn on_gpus(self) -> bool {
        self.backend.name() == "nccl"
    }

    /// The call of a user without Tributary, for one buffer.
    pub fn peer(self) -> Call {
        if self.on_gpus() {
            NCCL
        } else {
            MEMCPY
        }
    }

    /// The name of a group of figures, such as `latency.host.2`. Figures of different settings are
    /// not compared with each other, so the setting is part of it.
    pub fn title(self, what: &str) -> String {
        format!("{what}.{}.{}", self.backend, self.ranks)
    }
}

/// The numbers that the environment variable `name` lists, such as `1048576,268435456`, or
/// `default`. Anything else ends the program.
pub fn numbers<T: FromStr + Copy>(name: &str, default: &[T]) -> Vec<T> {
    let Some(text) = env::var_os(name) else { return default.to_vec() };
    let parsed = text.to_str().and_then(parse);
    parsed.unwrap_or_else(|| {
        eprintln!("{name}={}: expected numbers and commas between them", text.display());
        exit(2)
    })
}

fn parse<T: FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').map(|number| number.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers() {
        assert_eq!(parse("1048576, 25557032"), Some(vec![1_048_576, 25_557_032]));
        assert_eq!(parse("0.001"), Some(vec![0.001]));
        assert_eq!(parse::<usize>("1M"), None);
        assert_eq!(parse::<usize>(""), None);
        assert_eq!(numbers("TRIBUTARY_BENCH_NOT_SET", &[5]), [5]);
    }
}
