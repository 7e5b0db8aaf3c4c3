//! Public behavior of `dapple-stage`.

mod admission;
mod deadline;
