//! An allocator that counts what each thread holds, so that a test can say how much a call took.
//!
//! It counts what is asked for, touched or not: a reserved gigabyte ends a process whose memory is
//! limited, although a page of it was never used.

// An allocator can't be written without; it passes every call on.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn take(bytes: usize) {
    let held = HELD.get().saturating_add(bytes);
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

/// What another thread took may be given back here.
fn give_back(bytes: usize) {
    HELD.set(HELD.get().saturating_sub(bytes));
}

// SAFETY: every call is passed on as it came to the system's allocator, which keeps the rules; counting
// takes no memory, since the cells are constants without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        take(new_size);
        give_back(layout.size());
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        give_back(layout.size());
        unsafe { System.dealloc(block, layout) }
    }
}

/// The most bytes that `run` held at once on this thread, beyond what was held before.
pub fn most_held(run: impl FnOnce()) -> usize {
    let before = HELD.get();
    MOST.set(before);
    run();
    MOST.get().saturating_sub(before)
}

#[test]
fn what_is_asked_for_is_counted() {
    let held = most_held(|| drop(Vec::<u8>::with_capacity(1 << 30)));
    assert!((1 << 30..(1 << 30) + 1_000).contains(&held), "{held}");
    assert!(most_held(|| drop(vec![0_u8; 1 << 30])) >= 1 << 30);
    let held = most_held(|| (0..100).for_each(|_| drop(Vec::<u8>::with_capacity(1_000))));
    assert!((1_000..2_000).contains(&held), "{held}");
}
