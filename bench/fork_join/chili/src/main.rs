// SPDX-License-Identifier: Apache-2.0
// chili (heartbeat scheduling in Rust): player-fork-join-chili fib|tree SIZE WORKERS REPETITIONS, see player.h.
use chili::{Config, Scope, ThreadPool};
use std::{env::args, num::NonZero, time::Instant};

fn fib(s: &mut Scope<'_>, n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = s.join(|s| fib(s, n - 1), |s| fib(s, n - 2));
    a + b
}

fn tree(s: &mut Scope<'_>, depth: u64) -> u64 {
    if depth == 0 {
        return 1;
    }
    let (a, b) = s.join(|s| tree(s, depth - 1), |s| tree(s, depth - 1));
    a + b
}

fn main() {
    let a: Vec<String> = args().collect();
    let number = |i: usize| a[i].parse::<u64>().expect("a number");
    let (size, workers, repetitions) = (number(2), number(3), number(4));
    let recursion = if a[1] == "fib" { fib } else { tree };
    let (mut value, mut next) = (0u64, 1u64); // fib(size), fib(size + 1)
    for _ in 0..size {
        (value, next) = (next, value + next);
    }
    let (expected, nodes) = if a[1] == "fib" { (value, next - 1) } else { (1 << size, (1 << size) - 1) };
    let pool = ThreadPool::with_config(Config { thread_count: NonZero::new(workers as usize), ..Default::default() });
    let mut scope = pool.scope();
    let mut verified = recursion(&mut scope, size) == expected; // the first run warms up
    let mut ns = Vec::new();
    for _ in 0..repetitions {
        let begin = Instant::now();
        verified &= recursion(&mut scope, size) == expected;
        ns.push(format!("{:.3}", begin.elapsed().as_nanos() as f64 / nodes as f64));
    }
    println!("{{\"verified\": {verified}, \"ns\": [{}]}}", ns.join(", "));
    std::process::exit(i32::from(!verified));
}
