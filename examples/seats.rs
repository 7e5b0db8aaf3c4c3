//! Books two adjacent seats in either of two theaters, and waits while neither has any.
//!
//! ```text
//! cargo run --example seats
//! ```

use dapple::stm::{StmResult, TVar, Tx, atomically};

/// A row of seats, each with its guest, if any.
#[derive(Clone)]
struct Theater {
    name: &'static str,
    seats: Vec<TVar<Option<&'static str>>>,
}

impl Theater {
    fn new(name: &'static str) -> Theater {
        Theater { name, seats: (0..4).map(|_| TVar::new(None)).collect() }
    }

    /// Books two adjacent seats, or waits for them.
    fn book(&self, tx: &mut Tx, guest: &'static str) -> StmResult<(&'static str, usize)> {
        for (index, pair) in self.seats.windows(2).enumerate() {
            if tx.read(&pair[0])?.is_none() && tx.read(&pair[1])?.is_none() {
                tx.write(&pair[0], Some(guest))?;
                tx.write(&pair[1], Some(guest))?;
                return Ok((self.name, index));
            }
        }
        // Until a guest leaves one of the seats read here.
        tx.retry()
    }

    /// Frees all seats of a guest; returns their number.
    fn leave(&self, tx: &mut Tx, guest: &'static str) -> StmResult<usize> {
        let mut left = 0;
        for seat in &self.seats {
            if tx.read(seat)? == Some(guest) {
                tx.write(seat, None)?;
                left += 1;
            }
        }
        Ok(left)
    }
}

#[dapple::main]
async fn main() {
    let (globe, rose) = (Theater::new("Globe"), Theater::new("Rose"));
    let guests = ["Ann", "Bob", "Cat", "Dan", "Eve", "Fay", "Gus", "Hal"];
    let visits = guests.map(|guest| {
        let (globe, rose) = (globe.clone(), rose.clone());
        dapple::spawn(async move {
            // The Globe if it has room, else the Rose, else the first to have room.
            let (theater, seat) =
                atomically(|tx| tx.or_else(|tx| globe.book(tx, guest), |tx| rose.book(tx, guest))).await;
            println!("{guest} sits in the {theater}, seats {seat} and {}", seat + 1);
            dapple::yield_now().await;
            let left = atomically(|tx| Ok(globe.leave(tx, guest)? + rose.leave(tx, guest)?)).await;
            assert_eq!(left, 2, "no other guest sat there");
        })
    });
    for visit in visits {
        visit.await.expect("no visit panics");
    }
    let empty = [globe, rose].iter().all(|theater| theater.seats.iter().all(|seat| seat.load().is_none()));
    assert!(empty, "all have left");
    println!("all have left");
}
