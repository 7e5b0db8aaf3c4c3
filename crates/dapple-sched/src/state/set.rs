//! Names for several colors: the trait [`Set`] and its implementors.

use crate::color::Color;
use crate::color::rights::ColorRef;
use crate::hold::held::Held;
use crate::hold::request::{Ask, Member};
use crate::state::borrow::{Reader, Writer};
use crate::state::colored::{Colored, TryWithError};
use crate::state::reading::Reading;

/// The argument of [`when`](crate::when()): tuples, slices, arrays and vectors. The trait is
/// sealed.
pub trait Set: part::Sealed {
    #[doc(hidden)]
    type Owned: Owned;
    #[doc(hidden)]
    type Members: AsMut<[Member]> + AsRef<[Member]>;
    #[doc(hidden)]
    fn members(&self, owned: &Self::Owned, ask: Ask) -> Self::Members;
    #[doc(hidden)]
    fn own(&self) -> Self::Owned;
}

/// The states of a set, kept for a closure.
#[doc(hidden)]
pub trait Owned: Send + 'static {
    /// The closure's argument.
    type Access<'x>;
    /// The states while a closure has them.
    type Lent<'x>
    where
        Self: 'x;
    /// Lends the states to a closure. Otherwise returns the color of the first state that is
    /// poisoned or that a closure already has, and which of the two it is.
    fn lend<'x>(&'x self, held: Held<'x>) -> Result<Self::Lent<'x>, (&'x Color, TryWithError)>;
    fn access<'g, 'x: 'g>(lent: &'g mut Self::Lent<'x>) -> Self::Access<'g>
    where
        Self: 'x;
    fn poison(&self);
    /// Calls `f` with the address of each state.
    fn each_state(&self, f: &mut dyn FnMut(usize));
}

pub(crate) mod part {
    /// Keeps [`super::Set`] to this crate.
    pub trait Sealed {}
}

/// One member of a set.
#[doc(hidden)]
pub trait Part: part::Sealed {
    type Owned: Owned;
    fn member(&self, owned: &Self::Owned, ask: Ask) -> Member;
    fn own(&self) -> Self::Owned;
}

impl<T: Send + 'static> part::Sealed for Colored<T> {}
impl<T: Send + 'static> Part for Colored<T> {
    type Owned = Colored<T>;
    fn member(&self, _owned: &Colored<T>, ask: Ask) -> Member {
        Member::new(self.color().alive(), false, ask)
    }
    fn own(&self) -> Colored<T> {
        self.clone()
    }
}

impl<P: Part> part::Sealed for &P {}
impl<P: Part> Part for &P {
    type Owned = P::Owned;
    fn member(&self, owned: &P::Owned, ask: Ask) -> Member {
        P::member(self, owned, ask)
    }
    fn own(&self) -> P::Owned {
        P::own(self)
    }
}

impl<T: Send + 'static> Owned for Colored<T> {
    type Access<'x> = &'x mut T;
    type Lent<'x> = Writer<'x, T>;
    fn lend<'x>(&'x self, held: Held<'x>) -> Result<Writer<'x, T>, (&'x Color, TryWithError)> {
        self.write(held).map_err(|error| (self.color(), error))
    }
    fn access<'g, 'x: 'g>(lent: &'g mut Writer<'x, T>) -> &'g mut T {
        lent
    }
    fn poison(&self) {
        Colored::poison(self);
    }
    fn each_state(&self, f: &mut dyn FnMut(usize)) {
        f(self.address());
    }
}

/// A state for reading.
#[doc(hidden)]
pub struct Reads<T>(Colored<T>);

impl<T: Send + Sync + 'static> part::Sealed for Reading<'_, T> {}
impl<T: Send + Sync + 'static> Part for Reading<'_, T> {
    type Owned = Reads<T>;
    fn member(&self, _owned: &Reads<T>, ask: Ask) -> Member {
        Member::new(self.state.color().alive(), true, ask)
    }
    fn own(&self) -> Reads<T> {
        Reads(self.state.clone())
    }
}

impl<T: Send + Sync + 'static> Owned for Reads<T> {
    type Access<'x> = &'x T;
    type Lent<'x> = Reader<'x, T>;
    fn lend<'x>(&'x self, held: Held<'x>) -> Result<Reader<'x, T>, (&'x Color, TryWithError)> {
        self.0.view(held).map_err(|error| (self.0.color(), error))
    }
    fn access<'g, 'x: 'g>(lent: &'g mut Reader<'x, T>) -> &'g T {
        lent
    }
    fn poison(&self) {}
    fn each_state(&self, f: &mut dyn FnMut(usize)) {
        f(self.0.address());
    }
}

impl part::Sealed for Color {}
impl Part for Color {
    type Owned = Kept;
    #[inline]
    fn member(&self, owned: &Kept, ask: Ask) -> Member {
        Member::new(owned.alive(self), false, ask)
    }
    #[inline]
    fn own(&self) -> Kept {
        Kept::new(self)
    }
}

/// Keeps a bare color of a request alive. For held or queued colors the request need not do this;
/// for the default color of the runtime that was current it must.
#[doc(hidden)]
pub struct Kept(Color);

impl Kept {
    #[inline]
    fn new(color: &Color) -> Kept {
        Kept(if color.is_resolved() { Color::DEFAULT } else { color.resolved() })
    }

    #[inline]
    fn alive<'c>(&'c self, color: &'c Color) -> ColorRef<'c> {
        if color.is_resolved() { color.alive() } else { self.0.alive() }
    }
}

impl Owned for Kept {
    type Access<'x> = ();
    type Lent<'x> = ();
    fn lend<'x>(&'x self, _held: Held<'x>) -> Result<(), (&'x Color, TryWithError)> {
        Ok(())
    }
    fn access<'g, 'x: 'g>(_lent: &'g mut ()) {}
    fn poison(&self) {}
    fn each_state(&self, _f: &mut dyn FnMut(usize)) {}
}

/// A color in a [`when`](crate::when()), for reading; see [`Color::reading`].
#[derive(Clone, Copy, Debug)]
pub struct ReadingColor<'a>(pub(crate) &'a Color);

impl part::Sealed for ReadingColor<'_> {}
impl Part for ReadingColor<'_> {
    type Owned = Kept;
    #[inline]
    fn member(&self, owned: &Kept, ask: Ask) -> Member {
        Member::new(owned.alive(self.0), true, ask)
    }
    #[inline]
    fn own(&self) -> Kept {
        Kept::new(self.0)
    }
}

impl Color {
    /// This color, for reading, as a part of a [`when`](crate::when()): closures that hold it this
    /// way may overlap each other, but no callback of the color.
    pub fn reading(&self) -> ReadingColor<'_> {
        ReadingColor(self)
    }
}

macro_rules! tuples {
    ($($count:literal: $($part:ident $at:tt),+;)+) => {$(
        impl<$($part: Part),+> part::Sealed for ($($part,)+) {}
        impl<$($part: Part),+> Set for ($($part,)+) {
            type Owned = ($($part::Owned,)+);
            type Members = [Member; $count];
            fn members(&self, owned: &Self::Owned, ask: Ask) -> [Member; $count] {
                [$(self.$at.member(&owned.$at, ask)),+]
            }
            fn own(&self) -> Self::Owned {
                ($(self.$at.own(),)+)
            }
        }
        impl<$($part: Owned),+> Owned for ($($part,)+) {
            type Access<'x> = ($($part::Access<'x>,)+);
            type Lent<'x> = ($($part::Lent<'x>,)+);
            fn lend<'x>(&'x self, held: Held<'x>) -> Result<Self::Lent<'x>, (&'x Color, TryWithError)> {
                Ok(($(self.$at.lend(held)?,)+))
            }
            fn access<'g, 'x: 'g>(lent: &'g mut Self::Lent<'x>) -> Self::Access<'g> {
                ($($part::access(&mut lent.$at),)+)
            }
            fn poison(&self) {
                $(self.$at.poison();)+
            }
            fn each_state(&self, f: &mut dyn FnMut(usize)) {
                $(self.$at.each_state(f);)+
            }
        }
    )+};
}

tuples! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}

impl<O: Owned> Owned for Vec<O> {
    type Access<'x> = Vec<O::Access<'x>>;
    type Lent<'x> = Vec<O::Lent<'x>>;
    fn lend<'x>(&'x self, held: Held<'x>) -> Result<Self::Lent<'x>, (&'x Color, TryWithError)> {
        self.iter().map(|state| state.lend(held)).collect()
    }
    fn access<'g, 'x: 'g>(lent: &'g mut Self::Lent<'x>) -> Self::Access<'g> {
        lent.iter_mut().map(O::access).collect()
    }
    fn poison(&self) {
        self.iter().for_each(Owned::poison);
    }
    fn each_state(&self, f: &mut dyn FnMut(usize)) {
        self.iter().for_each(|state| state.each_state(f));
    }
}

/// Implements [`Set`] for references to many values of one kind.
macro_rules! many {
    ($([$($generics:tt)*] $many:ty;)+) => {$(
        impl<$($generics)*> part::Sealed for $many {}
        impl<$($generics)*> Set for $many {
            type Owned = Vec<P::Owned>;
            type Members = Box<[Member]>;
            fn members(&self, owned: &Vec<P::Owned>, ask: Ask) -> Box<[Member]> {
                self.iter().zip(owned).map(|(part, owned)| part.member(owned, ask)).collect()
            }
            fn own(&self) -> Vec<P::Owned> {
                self.iter().map(Part::own).collect()
            }
        }
    )+};
}

many! {
    [P: Part] &[P];
    [P: Part] &Vec<P>;
    [P: Part, const N: usize] &[P; N];
}
