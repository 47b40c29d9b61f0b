//! Work that blocks (disk, cgroup files that are busy for a moment), off the loop.
//!
//! The usual pool of the async runtime looks every half second whether its threads are still needed, so an idle node
//! would wake up twice a second for ever. Here a thread that has nothing to do either waits without a time limit or
//! ends at once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

type Job = Box<dyn FnOnce() + Send>;

/// Threads at the most; more work waits its turn.
const MOST: usize = 32;
/// Threads that stay when there is nothing to do: one start of a pod keeps two busy.
const KEPT: usize = 2;

struct Pool {
    waiting: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { waiting: VecDeque::new(), threads: 0, idle: 0 });
static MORE: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    // a job never runs under the lock, so what a panic leaves behind is whole
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on a thread of the pool. Work whose result nobody waits for any more is not begun.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, result) = smol::channel::bounded(1);
    let job: Job = Box::new(move || {
        if !tell.is_closed() {
            // an error: the waiting side has gone meanwhile
            tell.try_send(work()).ok();
        }
    });
    submit(job);
    match result.recv().await {
        Ok(value) => value,
        // only after a panic in a build that unwinds; a release build has ended there
        Err(_) => std::future::pending().await,
    }
}

fn submit(job: Job) {
    let mut pool = pool();
    pool.waiting.push_back(job);
    if pool.idle >= pool.waiting.len() {
        drop(pool);
        return MORE.notify_one();
    }
    if pool.threads < MOST {
        pool.threads += 1;
        drop(pool);
        if std::thread::Builder::new().name("work".into()).spawn(serve).is_err() {
            refused();
        }
    }
}

/// No thread could be made: those that there are take the work, or without any this one does it now.
fn refused() {
    let mut pool = pool();
    pool.threads -= 1;
    if pool.threads == 0 {
        while let Some(job) = pool.waiting.pop_front() {
            drop(pool);
            job();
            pool = self::pool();
        }
    }
}

fn serve() {
    let mut pool = pool();
    loop {
        if let Some(job) = pool.waiting.pop_front() {
            drop(pool);
            // the panic was reported by its hook; the thread is still good
            catch_unwind(AssertUnwindSafe(job)).ok();
            pool = self::pool();
        } else if pool.idle >= KEPT {
            pool.threads -= 1;
            return;
        } else {
            pool.idle += 1;
            pool = MORE.wait(pool).unwrap_or_else(PoisonError::into_inner);
            pool.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_work_is_done_and_few_threads_stay() {
        let results: Vec<u32> = smol::block_on(async {
            let executor = smol::LocalExecutor::new();
            let tasks: Vec<_> = (0..200).map(|n| executor.spawn(run(move || n * 2))).collect();
            let mut results = Vec::new();
            executor
                .run(async {
                    for task in tasks {
                        results.push(task.await);
                    }
                })
                .await;
            results
        });
        assert_eq!(results, (0..200).map(|n| n * 2).collect::<Vec<_>>());
        let end = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while pool().threads > KEPT {
            assert!(std::time::Instant::now() < end, "{} threads stay", pool().threads);
            std::thread::yield_now();
        }
    }

    #[test]
    fn panic_in_work_takes_no_thread_away() {
        smol::block_on(async {
            let bad = smol::future::or(
                async {
                    run(|| panic!("on purpose")).await;
                    false
                },
                async {
                    smol::Timer::after(std::time::Duration::from_millis(50)).await;
                    true
                },
            );
            assert!(bad.await);
            assert_eq!(run(|| 7).await, 7);
        });
    }
}
