//! Routes from knot to knot: which hang follows from which, and which ranks wait for each other.

use std::collections::VecDeque;

use crate::wait::{Knot, Why};

/// A blocker of a knot: the indices of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub knot: usize,
    pub blocker: usize,
}

/// Ranks that wait for each other: each blocker waits in the knot of the next step, the last one in
/// that of the first.
pub type Cycle = Vec<Step>;

/// The shortest cycle through each knot that is on one, and each only once.
pub fn cycles(knots: &[Knot]) -> Vec<Cycle> {
    let mut cycles = Vec::new();
    let mut covered = vec![false; knots.len()];
    for start in 0..knots.len() {
        if covered[start] {
            continue;
        }
        if let Some(cycle) = shortest_cycle(knots, start) {
            cycle.iter().for_each(|step| covered[step.knot] = true);
            cycles.push(cycle);
        }
    }
    cycles
}

fn shortest_cycle(knots: &[Knot], start: usize) -> Option<Cycle> {
    let mut came_by: Vec<Option<Step>> = vec![None; knots.len()];
    let mut next = VecDeque::from([start]);
    while let Some(knot) = next.pop_front() {
        for (blocker, to) in onward(&knots[knot]) {
            if came_by[to].is_some() {
                continue;
            }
            came_by[to] = Some(Step { knot, blocker });
            if to == start {
                return Some(way_back(&came_by, start));
            }
            next.push_back(to);
        }
    }
    None
}

fn way_back(came_by: &[Option<Step>], start: usize) -> Cycle {
    let mut cycle = Cycle::new();
    let mut at = start;
    while let Some(step) = came_by[at] {
        cycle.push(step);
        at = step.knot;
        if at == start {
            break;
        }
    }
    cycle.reverse();
    cycle
}

fn onward<'k>(knot: &'k Knot) -> impl Iterator<Item = (usize, usize)> + 'k {
    let onward = |(index, blocker): (usize, &crate::wait::Blocker)| {
        blocker.onward.map(|onward| (index, onward.knot))
    };
    knot.blockers.iter().enumerate().filter_map(onward)
}

/// Forget where a blocker may wait: what is left is known, or part of a cycle.
pub fn keep_sure(knots: &mut [Knot], cycles: &[Cycle]) {
    let on_cycle = |knot, blocker| cycles.iter().flatten().any(|&s| s == Step { knot, blocker });
    for (index, knot) in knots.iter_mut().enumerate() {
        for (number, blocker) in knot.blockers.iter_mut().enumerate() {
            let sure = blocker.onward.is_some_and(|onward| onward.sure);
            if !sure && !on_cycle(index, number) {
                blocker.onward = None;
            }
        }
    }
}

/// How many other knots each knot waits for, by any number of steps: one that waits for another has
/// at least as many.
pub fn depths(knots: &[Knot]) -> Vec<usize> {
    (0..knots.len()).map(|start| depth(knots, start)).collect()
}

fn depth(knots: &[Knot], start: usize) -> usize {
    let mut seen = vec![false; knots.len()];
    let mut next = vec![start];
    let mut depth = 0;
    seen[start] = true;
    while let Some(knot) = next.pop() {
        for (_, to) in onward(&knots[knot]) {
            if !std::mem::replace(&mut seen[to], true) {
                depth += 1;
                next.push(to);
            }
        }
    }
    depth
}

/// The blockers to report: those that are no mere suspicion.
pub fn blamed<'k, 'a>(
    knot: &'k Knot<'a>,
) -> impl Iterator<Item = (usize, &'k crate::wait::Blocker<'a>)> {
    knot.blockers.iter().enumerate().filter(|(_, blocker)| blocker.why != Why::Vague)
}
