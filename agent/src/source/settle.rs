//! When a file that is being written is looked at: pure, with the time as argument.
//!
//! A new file, or one renamed into place, is whole as soon as its writer closes it: it is looked at at once. A file
//! whose pods exist and that is rewritten in place, one that just was empty or broken, and one that vanished, must
//! first be left alone for the quiet period: editors and slow writers pass through states nobody meant.

use std::time::{Duration, Instant};

/// A file found empty or broken this recently is probably still being written.
const RECENT: Duration = Duration::from_secs(2);
/// A writer that neither writes nor closes is not waited for any longer.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// `install` and `cp --remove-destination` delete a file and make it again within a millisecond; an `rm` is meant.
const REPLACED_WITHIN: Duration = Duration::from_millis(15);

/// What was seen to happen to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// a new name; its text may follow
    Created,
    Written,
    /// its writer closed it
    Closed,
    /// renamed into place, or a link: whole from the start
    Placed,
    /// deleted: nobody but a replacement brings it back
    Deleted,
    /// renamed away, as editors do before they write the new text, or no longer found
    Gone,
    /// mode, owner or time stamps
    Attributes,
    /// found by listing the folder
    Listed,
}

/// What a look at a file showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// objects, or a text that is meant to have none
    Good,
    /// no text, or one that cannot be read
    Bad,
    Absent,
}

/// Of one file.
#[derive(Clone, Debug, Default)]
pub struct Settle {
    /// the next look
    due: Option<Instant>,
    /// last found empty or broken
    bad_at: Option<Instant>,
    /// the look that is due was not preceded by a quiet period
    hasty: bool,
}

impl Settle {
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// `precious`: objects of this file are in force.
    pub fn event(&mut self, seen: Seen, precious: bool, now: Instant, quiet: Duration) {
        let recently_bad = self.bad_at.is_some_and(|at| now.saturating_duration_since(at) < RECENT);
        let wait = match seen {
            Seen::Placed => Duration::ZERO,
            Seen::Closed | Seen::Listed if precious || recently_bad => quiet,
            Seen::Closed | Seen::Listed => Duration::ZERO,
            Seen::Deleted => REPLACED_WITHIN.min(quiet),
            Seen::Created | Seen::Gone => quiet,
            Seen::Written => OPEN_LIMIT.max(quiet),
            // a change of mode or time says nothing about the text that is being written
            Seen::Attributes if self.due.is_some() => return,
            Seen::Attributes => Duration::ZERO,
        };
        self.due = Some(now + wait);
        // what a listing finds was there before: its state is told as it is
        self.hasty = wait.is_zero() && seen != Seen::Listed;
    }

    /// Notes what the look that was due showed; true when it should be told now. A bad text that nothing announced as
    /// settled gets a second look first, so that short-lived states make no noise.
    pub fn looked(&mut self, shown: Shown, precious: bool, now: Instant, quiet: Duration) -> bool {
        let hasty = std::mem::take(&mut self.hasty);
        self.due = None;
        match shown {
            Shown::Good => self.bad_at = None,
            Shown::Bad => self.bad_at = Some(now),
            Shown::Absent => {}
        }
        let again = match shown {
            Shown::Good => false,
            Shown::Bad => hasty,
            // what is gone for a blink is not gone
            Shown::Absent => hasty && precious,
        };
        if again {
            self.due = Some(now + quiet);
        }
        !again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_millis(500);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// How long after the event the look comes.
    fn wait(settle: &Settle, now: Instant) -> Duration {
        settle.due().unwrap() - now
    }

    #[test]
    fn new_file_is_looked_at_when_closed() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.event(Seen::Created, false, now, QUIET);
        assert_eq!(wait(&settle, now), QUIET);
        settle.event(Seen::Written, false, now, QUIET);
        assert_eq!(wait(&settle, now), OPEN_LIMIT);
        settle.event(Seen::Attributes, false, now, QUIET);
        assert_eq!(wait(&settle, now), OPEN_LIMIT);
        settle.event(Seen::Closed, false, now, QUIET);
        assert_eq!(wait(&settle, now), Duration::ZERO);
        assert!(settle.looked(Shown::Good, false, now, QUIET));
        assert_eq!(settle.due(), None);
    }

    #[test]
    fn file_in_force_waits_for_quiet_unless_renamed_into_place() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.event(Seen::Closed, true, now, QUIET);
        assert_eq!(wait(&settle, now), QUIET);
        // each further change starts the wait again
        settle.event(Seen::Closed, true, now + ms(400), QUIET);
        assert_eq!(wait(&settle, now), ms(900));
        settle.event(Seen::Placed, true, now + ms(450), QUIET);
        assert_eq!(wait(&settle, now), ms(450));
    }

    #[test]
    fn deleted_file_is_looked_for_soon_and_a_renamed_one_after_the_quiet_period() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.event(Seen::Deleted, true, now, QUIET);
        assert_eq!(wait(&settle, now), REPLACED_WITHIN);
        // told at the first look: it is meant
        assert!(settle.looked(Shown::Absent, true, now + REPLACED_WITHIN, QUIET));
        settle.event(Seen::Gone, true, now, QUIET);
        assert_eq!(wait(&settle, now), QUIET);
    }

    #[test]
    fn bad_text_of_a_new_file_is_told_only_after_a_second_look() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.event(Seen::Closed, false, now, QUIET);
        assert!(!settle.looked(Shown::Bad, false, now, QUIET));
        assert_eq!(wait(&settle, now), QUIET);
        // written on within the time: waits again
        settle.event(Seen::Closed, false, now + ms(300), QUIET);
        assert_eq!(wait(&settle, now), ms(800));
        assert!(settle.looked(Shown::Bad, false, now + ms(800), QUIET));
        assert_eq!(settle.due(), None);
        // long after, a correction counts at once
        settle.event(Seen::Closed, false, now + ms(5000), QUIET);
        assert_eq!(wait(&settle, now), ms(5000));
    }

    #[test]
    fn bad_text_that_a_listing_finds_is_told_at_once() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.event(Seen::Listed, false, now, QUIET);
        assert_eq!(wait(&settle, now), Duration::ZERO);
        assert!(settle.looked(Shown::Bad, false, now, QUIET));
    }

    #[test]
    fn vanished_file_is_given_time_to_come_back() {
        let now = Instant::now();
        let mut settle = Settle::default();
        settle.event(Seen::Gone, true, now, QUIET);
        assert_eq!(wait(&settle, now), QUIET);
        assert!(settle.looked(Shown::Absent, true, now + QUIET, QUIET));
        // found missing by a listing
        settle.event(Seen::Placed, true, now, QUIET);
        assert!(!settle.looked(Shown::Absent, true, now, QUIET));
        assert_eq!(wait(&settle, now), QUIET);
    }
}
