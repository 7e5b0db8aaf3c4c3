//! A snapshot of a graph: numbered nodes and the flows between them.

use std::sync::Arc;

use super::Node;
use crate::stage::StageStats;

/// From, to, and a label.
pub(crate) type Link<N> = (N, N, &'static str);

/// Nodes and links at one moment.
pub(crate) struct View {
    pub(crate) nodes: Vec<NodeView>,
    /// From, to, and a label.
    pub(crate) links: Vec<(usize, usize, &'static str)>,
}

pub(crate) struct NodeView {
    pub(crate) name: String,
    pub(crate) stats: Option<StageStats>,
    /// The length of the longest path from a node without senders.
    pub(crate) layer: usize,
}

impl View {
    /// All nodes reachable from `roots`, and the links that were added by hand.
    pub(crate) fn new(roots: Vec<Arc<dyn Node>>, more: Vec<Link<Arc<dyn Node>>>) -> View {
        let mut found: Vec<Arc<dyn Node>> = Vec::new();
        let mut links = Vec::new();
        for root in roots {
            place_of(&mut found, root);
        }
        for (from, to, how) in more {
            let link = (place_of(&mut found, from), place_of(&mut found, to), how);
            links.push(link);
        }
        let mut next = 0;
        while next < found.len() {
            for (to, how) in found[next].links() {
                let link = (next, place_of(&mut found, to), how);
                if !links.contains(&link) {
                    links.push(link);
                }
            }
            next += 1;
        }
        let layers = layers(found.len(), &links);
        let nodes = found.iter().zip(layers);
        let nodes = nodes.map(|(node, layer)| NodeView { name: node.name(), stats: node.stats(), layer }).collect();
        View { nodes, links }
    }
}

fn place_of(found: &mut Vec<Arc<dyn Node>>, node: Arc<dyn Node>) -> usize {
    let known = found.iter().position(|other| std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(&node)));
    known.unwrap_or_else(|| {
        found.push(node);
        found.len() - 1
    })
}

/// The length of the longest path to each node. Ignores links that close a cycle.
fn layers(count: usize, links: &[(usize, usize, &'static str)]) -> Vec<usize> {
    let forward = without_cycles(count, links);
    let mut layers = vec![0; count];
    // As many rounds as the longest path has links.
    for _ in 0..count {
        let mut changed = false;
        for (from, to) in &forward {
            if layers[*to] <= layers[*from] {
                layers[*to] = layers[*from] + 1;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    layers
}

/// The links without those that lead back, in a depth-first walk in the order of the numbers.
fn without_cycles(count: usize, links: &[(usize, usize, &'static str)]) -> Vec<(usize, usize)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        Not,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::Not; count];
    let mut forward = Vec::new();
    for root in 0..count {
        // Each with the number of its links already followed.
        let mut way = vec![(root, 0)];
        while let Some((node, followed)) = way.pop() {
            if followed == 0 && seen[node] == Seen::Done {
                continue;
            }
            seen[node] = Seen::OnTheWay;
            let link = links.iter().filter(|(from, ..)| *from == node).nth(followed);
            let Some((_, to, _)) = link else {
                seen[node] = Seen::Done;
                continue;
            };
            way.push((node, followed + 1));
            if seen[*to] != Seen::OnTheWay && node != *to {
                forward.push((node, *to));
                way.push((*to, 0));
            }
        }
    }
    forward
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_layer_is_the_longest_path() {
        let links = [(0, 1, ""), (1, 2, ""), (0, 2, ""), (2, 3, ""), (3, 1, "")];
        assert_eq!(layers(5, &links), [0, 1, 2, 3, 0]);
    }

    proptest! {
        // For any links, the algorithm ends, and each link outside a cycle goes to a higher layer.
        #[test]
        fn links_go_up(links in prop::collection::vec((0usize..12, 0usize..12), 0..40)) {
            let links: Vec<_> = links.into_iter().map(|(from, to)| (from, to, "")).collect();
            let layers = layers(12, &links);
            for (from, to) in without_cycles(12, &links) {
                prop_assert!(layers[from] < layers[to]);
            }
            prop_assert!(layers.iter().all(|layer| *layer < 12));
            let acyclic = links.iter().all(|(from, to, _)| from < to);
            if acyclic {
                prop_assert_eq!(without_cycles(12, &links).len(), links.len());
            }
        }
    }
}
