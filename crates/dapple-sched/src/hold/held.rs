//! The proof that this thread holds a color. The holder passes it to closures, which show it to the
//! state that they touch.

use crate::color::rights::{ColorRef, Hold};
use crate::hold::request::Request;
use crate::memory::alive::Alive;
use crate::runtime::context;

/// This thread holds a color, or several, during `'a`. Public only in name: code outside cannot
/// reach this module.
#[derive(Clone, Copy)]
pub struct Held<'a>(What<'a>);

#[derive(Clone, Copy)]
enum What<'a> {
    /// For writing.
    One(ColorRef<'a>),
    Read(ColorRef<'a>),
    Many(Alive<'a, Request>),
}

impl<'a> What<'a> {
    #[inline]
    fn of(color: ColorRef<'a>, reads: bool) -> What<'a> {
        if reads { What::Read(color) } else { What::One(color) }
    }
}

impl<'a> Held<'a> {
    #[inline]
    pub(super) fn by_hold(hold: &'a Hold) -> Held<'a> {
        Held(What::of(hold.color(), hold.reads()))
    }

    /// # Safety
    /// This thread has everything that the request holds, for `'a`.
    pub(super) unsafe fn by_request(request: Alive<'a, Request>) -> Held<'a> {
        Held(What::Many(request))
    }

    /// # Safety
    /// This thread has the color for `'a`, for writing unless it `reads`.
    #[inline]
    pub(super) unsafe fn by_turn(color: ColorRef<'a>, reads: bool) -> Held<'a> {
        Held(What::of(color, reads))
    }

    /// Runs `f` if this thread runs a callback of the color, or a callback that holds it.
    #[inline]
    pub(crate) fn by_callback<R>(color: ColorRef<'_>, f: impl FnOnce(Held<'_>) -> R) -> Option<R> {
        context::holds(color.ptr()).then(|| f(Held(What::One(color))))
    }

    /// Runs `f` as a part of a closure or callback of this thread that holds the color; if `f` only
    /// `reads`, a hold for reading is enough.
    #[inline]
    pub(crate) fn in_line<F, R>(color: ColorRef<'_>, reads: bool, f: F) -> Result<R, F>
    where
        F: FnOnce(Held<'_>) -> R,
    {
        let writes = context::holds(color.ptr());
        let held = Held(What::of(color, !writes));
        if writes && !reads {
            Ok(context::in_frame(color.ptr(), |_| f(held)))
        } else if reads && (writes || context::reads(color.ptr())) {
            Ok(context::in_read_frame(color.ptr(), || f(held)))
        } else {
            Err(f)
        }
    }

    /// Whether the color is among those held: for writing, or if it `reads`, at least for reading.
    #[inline]
    pub(crate) fn covers(self, color: ColorRef<'_>, reads: bool) -> bool {
        match self.0 {
            What::One(one) => one == color,
            What::Read(one) => one == color && reads,
            What::Many(request) => request.holds(color.ptr(), reads),
        }
    }

    /// Whether a closure that reads a state of the color has to be counted, because the thread
    /// could write inside of it.
    #[inline]
    pub(crate) fn may_write(self, color: ColorRef<'_>) -> bool {
        match self.0 {
            What::One(_) => true,
            What::Read(_) => false,
            What::Many(_) => context::holds(color.ptr()),
        }
    }
}
