//! Random small programs: what the explorer recovers is exactly what a naive model of the media allows.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use crash::{Config, Model, Rng, as_thread, run};

use crate::tiny::{read, tiny};

/// Five words in two lines.
const WORDS: [u64; 5] = [0, 8, 56, 64, 120];

#[derive(Clone, Copy, Debug)]
enum Act {
    Store(usize, u64),
    Flush(usize, u64),
    Drain(usize),
}

fn program(rng: &mut Rng) -> Vec<Act> {
    (0..12)
        .map(|_| match rng.below(8) {
            0..4 => Act::Store(rng.index(WORDS.len()), rng.below(4)),
            4..6 => Act::Flush(rng.index(2), rng.below(2) * 64),
            _ => Act::Drain(rng.index(2)),
        })
        .collect()
}

/// One word: what the media surely has, and each later value with the threads that have it in flight.
#[derive(Clone, Default)]
struct Word {
    now: u64,
    sure: u64,
    later: Vec<(u64, [bool; 2])>,
}

/// All images that the crash points of a program leave, by the definition of the model and without any cleverness.
fn naive(program: &[Act], model: Model) -> BTreeSet<Vec<u64>> {
    let mut words = vec![Word::default(); WORDS.len()];
    let mut images = BTreeSet::new();
    let see = |words: &mut [Word]| {
        for word in words {
            if word.later.last().map_or(word.sure, |l| l.0) != word.now {
                word.later.push((word.now, [false; 2]));
            }
        }
    };
    let crash = |words: &[Word], images: &mut BTreeSet<Vec<u64>>| {
        let mut product = vec![vec![]];
        for word in words {
            let values: Vec<u64> = std::iter::once(word.sure).chain(word.later.iter().map(|l| l.0)).collect();
            product = product.iter().flat_map(|p| values.iter().map(|&v| [&p[..], &[v]].concat())).collect();
        }
        images.extend(product);
    };
    let file = matches!(model, Model::File { .. });
    for act in program {
        match *act {
            Act::Store(at, value) => words[at].now = value,
            Act::Flush(thread, line) => {
                see(&mut words);
                for (word, _) in words.iter_mut().zip(WORDS).filter(|(_, at)| at / 64 * 64 == line) {
                    word.later.last_mut().into_iter().for_each(|l| l.1[thread] = true);
                }
            }
            Act::Drain(thread) => {
                see(&mut words);
                crash(&words, &mut images);
                for word in &mut words {
                    if let Some(last) = word.later.iter().rposition(|l| file || l.1[thread]) {
                        word.sure = word.later[last].0;
                        word.later.drain(..=last);
                    }
                }
            }
        }
    }
    see(&mut words);
    crash(&words, &mut images);
    images
}

/// Stores of one interval, and for which threads they are in flight.
type Stores = (Vec<(usize, u64)>, [bool; 2]);

/// One line: what the media surely has, and the changes of each later interval with the threads that have them in flight.
#[derive(Clone)]
struct Line {
    sure: Vec<u64>,
    later: Vec<Stores>,
}

impl Line {
    fn newest(&self) -> Vec<u64> {
        self.after(self.later.len())
    }

    /// Content once this many intervals have arrived.
    fn after(&self, intervals: usize) -> Vec<u64> {
        let mut content = self.sure.clone();
        self.later[..intervals].iter().flat_map(|(changes, _)| changes).for_each(|&(at, value)| content[at] = value);
        content
    }

    fn states(&self) -> Vec<Vec<u64>> {
        let mut states = vec![self.sure.clone()];
        for (interval, (changes, _)) in self.later.iter().enumerate() {
            for subset in 0..1 << changes.len() {
                let mut state = self.after(interval);
                for (_, &(at, value)) in changes.iter().enumerate().filter(|(i, _)| subset >> i & 1 == 1) {
                    state[at] = value;
                }
                states.push(state);
            }
        }
        states
    }
}

/// The same for whole lines that keep the order of their stores: the first three words are one line, the others the second.
fn naive_lines(program: &[Act]) -> BTreeSet<Vec<u64>> {
    let mut now = [vec![0; 3], vec![0; 2]];
    let mut lines = now.clone().map(|sure| Line { sure, later: Vec::new() });
    let mut images = BTreeSet::new();
    let see = |now: &[Vec<u64>; 2], lines: &mut [Line; 2]| {
        for (now, line) in now.iter().zip(lines) {
            let before = line.newest();
            let changes: Vec<_> = now.iter().copied().enumerate().filter(|&(at, value)| before[at] != value).collect();
            if !changes.is_empty() {
                line.later.push((changes, [false; 2]));
            }
        }
    };
    let mut crash = |lines: &[Line; 2]| {
        for first in lines[0].states() {
            images.extend(lines[1].states().iter().map(|second| [&first[..], second].concat()));
        }
    };
    for act in program {
        match *act {
            Act::Store(at, value) => now[at / 3][at % 3] = value,
            Act::Flush(thread, offset) => {
                see(&now, &mut lines);
                lines[(offset / 64) as usize].later.last_mut().into_iter().for_each(|l| l.1[thread] = true);
            }
            Act::Drain(thread) => {
                see(&now, &mut lines);
                crash(&lines);
                for line in &mut lines {
                    if let Some(last) = line.later.iter().rposition(|l| l.1[thread]) {
                        line.sure = line.after(last + 1);
                        line.later.drain(..=last);
                    }
                }
            }
        }
    }
    see(&now, &mut lines);
    crash(&lines);
    images
}

#[test]
fn the_explorer_recovers_what_the_naive_model_allows() {
    for seed in 0..600 {
        let model = [Model::Words, Model::Lines, Model::File { sector: 512 }][seed as usize % 3];
        let acts = program(&mut Rng::seeded(seed));
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let (steps, out) = (acts.clone(), Arc::clone(&seen));
        let report = run(
            tiny(
                [0],
                move |sim, _, _| {
                    for act in &steps {
                        match *act {
                            Act::Store(at, value) => sim.store(WORDS[at], value)?,
                            Act::Flush(thread, line) => as_thread(thread, || sim.flush(line, 64)),
                            Act::Drain(thread) => as_thread(thread, || sim.drain())?,
                        }
                    }
                    Ok(())
                },
                move |sim, _| {
                    let image = WORDS.iter().map(|&at| read(sim, at)).collect::<Result<Vec<_>, _>>()?;
                    out.lock().unwrap().insert(image.clone());
                    Ok(image)
                },
            ),
            &Config::seeded(seed).model(model).kills(false),
        );
        report.expect_clean();
        assert!(report.is_complete(), "{report}");
        let expected = if model == Model::Lines { naive_lines(&acts) } else { naive(&acts, model) };
        assert_eq!(*seen.lock().unwrap(), expected, "seed {seed}: {acts:?}");
        assert_eq!(report.states, expected.len() as u64, "seed {seed}: {acts:?}");
    }
}
