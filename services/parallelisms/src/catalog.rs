//! The catalog in the store: packages, their categories, and for each category its packages.
//!
//! | table | key | value |
//! |---|---|---|
//! | `packages-N` | a package | [`Package`] |
//! | `categories-N` | a category, such as `tag:protocol::http` | [`Category`] |
//! | `members-N` | a category | its packages |
//! | `current` | `""` | the number `N` of the present tables |
//!
//! A load writes new tables and then the number, so that a load which ends early changes nothing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use dapple::store::{AnyEngine, Error, OrderedTable, Store, Table, TableOptions};
use futures_util::stream;
use serde::{Deserialize, Serialize};

use crate::packages::{Package, Packages, merge};

/// The number of packages of a category, and how much it says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Category {
    /// The number of its packages.
    pub(crate) count: u32,
    /// The logarithm of its rarity: two packages that share a rare category are more alike. 0 for the category of a
    /// single package.
    pub(crate) weight: f64,
}

/// An answer to "which packages are like this one?".
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) package: Package,
    /// Other packages from the same source, by name.
    pub(crate) same_source: Vec<String>,
    /// The most similar packages, the best first, and one for each source.
    pub(crate) like: Vec<Like>,
}

/// A similar package.
#[derive(Debug)]
pub(crate) struct Like {
    pub(crate) name: String,
    pub(crate) package: Package,
    /// The weight of the shared categories, divided by that of all categories of the two packages: 0 to 1.
    pub(crate) score: f64,
    /// The shared categories, the heaviest first.
    pub(crate) reasons: Vec<(String, Category)>,
}

/// The present tables.
#[derive(Clone)]
pub(crate) struct Catalog {
    packages: OrderedTable<String, Package, AnyEngine>,
    categories: OrderedTable<String, Category, AnyEngine>,
    members: OrderedTable<String, Vec<String>, AnyEngine>,
    /// The names of all packages, in order.
    names: Arc<Vec<String>>,
}

impl Catalog {
    /// Opens the catalog; `None` if no list has been loaded.
    pub(crate) async fn open(store: &Store<AnyEngine>) -> Result<Option<Catalog>, Error> {
        let Some(number) = current(store).await?.get(&String::new()).await? else { return Ok(None) };
        let mut catalog = Catalog {
            packages: store.ordered_table(&format!("packages-{number}")).await?,
            categories: store.ordered_table(&format!("categories-{number}")).await?,
            members: store.ordered_table(&format!("members-{number}")).await?,
            names: Arc::default(),
        };
        let mut packages = catalog.packages.range(..)?;
        let mut names = Vec::new();
        while let Some((name, _)) = packages.next().await? {
            names.push(name);
        }
        catalog.names = Arc::new(names);
        Ok(Some(catalog))
    }

    /// The number of packages.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The packages that are like the one of this name; `None` if there is no such package.
    pub(crate) async fn like(&self, name: &str) -> Result<Option<Answer>, Error> {
        let Some(package) = self.packages.get(&name.to_owned()).await? else { return Ok(None) };
        let categories = self.categories_of(&package).await?;
        let candidates = self.candidates(name, &categories).await?;
        let found = self.packages.get_many(&candidates).await?;
        let others = candidates.into_iter().zip(found).filter_map(|(name, package)| Some((name, package?)));
        let mut like: Vec<Like> = others.map(|(name, other)| Like::new(&package, &categories, name, other)).collect();
        like.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.name.cmp(&b.name)));
        let (mut same, other): (Vec<Like>, Vec<Like>) =
            like.into_iter().partition(|like| like.package.source == package.source);
        same.sort_by(|a, b| a.name.cmp(&b.name));
        let mut sources = HashSet::new();
        let best = other.into_iter().filter(|like| sources.insert(like.package.source.clone()));
        let like = best.take(ANSWERS_MAX).collect();
        Ok(Some(Answer { package, same_source: same.into_iter().map(|like| like.name).collect(), like }))
    }

    /// The packages of a category; `None` if there is no such category.
    pub(crate) async fn members(&self, category: &str) -> Result<Option<Vec<String>>, Error> {
        self.members.get(&category.to_owned()).await
    }

    /// The names that are most similar to one that is wrong, the best first.
    pub(crate) fn nearest(&self, wrong: &str) -> Vec<&str> {
        let wrong: String = wrong.to_ascii_lowercase().chars().take(WRONG_LEN_MAX).collect();
        // Only such names are compared letter by letter, which is slow.
        let may_be = |name: &&String| name.as_bytes().first() == wrong.as_bytes().first();
        let is_near = |name: &&String| name.len().abs_diff(wrong.len()) <= DISTANCE_MAX;
        let near = self.names.iter().filter(may_be).filter(is_near);
        let distances = near.map(|name| (strsim::osa_distance(&wrong, name), name.as_str()));
        let mut close: Vec<(usize, &str)> = distances.filter(|(distance, _)| *distance <= DISTANCE_MAX).collect();
        close.sort_unstable();
        close.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect()
    }

    /// The categories of a package, the rarest first.
    async fn categories_of(&self, package: &Package) -> Result<Vec<(String, Category)>, Error> {
        let found = self.categories.get_many(&package.categories).await?;
        let found = package.categories.iter().zip(found);
        let mut categories: Vec<_> = found.filter_map(|(name, category)| Some((name.clone(), category?))).collect();
        categories.sort_by(|a, b| b.1.weight.total_cmp(&a.1.weight).then_with(|| a.0.cmp(&b.0)));
        Ok(categories)
    }

    /// The names of the packages that share the most with the one called `name`.
    ///
    /// It reads the packages of the rarest categories only: those of `needs:libc6` would take longer than all others, and
    /// say nearly nothing.
    async fn candidates(&self, name: &str, categories: &[(String, Category)]) -> Result<Vec<String>, Error> {
        let mut by_count: Vec<&(String, Category)> = categories.iter().filter(|(_, found)| found.count > 1).collect();
        by_count.sort_by_key(|(_, category)| category.count);
        let mut sum = 0;
        let counts = by_count.iter().map(|(_, category)| {
            sum = u32::saturating_add(sum, category.count);
            sum
        });
        let within = counts.take_while(|sum| *sum <= MEMBERS_MAX).count();
        by_count.truncate(within.max(1));
        let found = self.members.get_many(by_count.iter().map(|(name, _)| name)).await?;
        let mut sums: HashMap<String, f64> = HashMap::new();
        for ((_, category), members) in by_count.into_iter().zip(found) {
            for member in members.unwrap_or_default() {
                *sums.entry(member).or_default() += category.weight;
            }
        }
        sums.remove(name);
        let mut candidates: Vec<(String, f64)> = sums.into_iter().collect();
        // All are compared exactly later, so that their order does not matter here.
        if candidates.len() > CANDIDATES_MAX {
            let by_sum = |a: &(String, f64), b: &(String, f64)| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0));
            candidates.select_nth_unstable_by(CANDIDATES_MAX, by_sum);
        }
        Ok(candidates.into_iter().take(CANDIDATES_MAX).map(|(name, _)| name).collect())
    }
}

impl Like {
    fn new(subject: &Package, categories: &[(String, Category)], name: String, package: Package) -> Like {
        let shared = categories.iter().filter(|(category, _)| package.categories.contains(category));
        let reasons: Vec<(String, Category)> = shared.cloned().collect();
        let both: f64 = reasons.iter().map(|(_, category)| category.weight).sum();
        let either = subject.weight + package.weight - both;
        let score = if either > 0.0 { both / either } else { 0.0 };
        Like { name, package, score, reasons }
    }
}

/// Adds packages to the catalog of a store, calls `progress` with the number of entries written and to write, and returns
/// the number of packages.
pub(crate) async fn load(
    store: &Store<AnyEngine>,
    mut packages: Packages,
    mut progress: impl FnMut(u64, u64),
) -> Result<usize, Error> {
    let current = current(store).await?;
    let before = current.get(&String::new()).await?;
    if let Some(known) = Catalog::open(store).await? {
        let mut known = known.packages.range(..)?;
        while let Some((name, found)) = known.next().await? {
            merge(&mut packages, name, found.value);
        }
    }
    let (categories, members) = invert(&mut packages);
    let number = before.unwrap_or(0) + 1;
    // A load that ended early may have left such tables.
    destroy(store, number).await;
    let count = packages.len();
    let total = (count + 2 * members.len()) as u64;
    let mut done = 0;
    done += fill(store, &format!("packages-{number}"), packages, |n| progress(n, total)).await?;
    done += fill(store, &format!("categories-{number}"), categories, |n| progress(done + n, total)).await?;
    fill(store, &format!("members-{number}"), members, |n| progress(done + n, total)).await?;
    current.put(&String::new(), &number).await?;
    if let Some(before) = before {
        destroy(store, before).await;
    }
    Ok(count)
}

/// Weighs the packages and their categories.
fn invert(packages: &mut Packages) -> (BTreeMap<String, Category>, BTreeMap<String, Vec<String>>) {
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, package) in packages.iter() {
        for category in &package.categories {
            members.entry(category.clone()).or_default().push(name.clone());
        }
    }
    let weighed = members.iter().map(|(name, members)| {
        // Tags say what a package is for, and dependencies how it is built.
        let factor = if name.starts_with("needs:") { 0.5 } else { 1.0 };
        let rarity = if members.len() == 1 { 0.0 } else { (packages.len() as f64 / members.len() as f64).ln() };
        let count = u32::try_from(members.len()).unwrap_or(u32::MAX);
        (name.clone(), Category { count, weight: factor * rarity })
    });
    let categories: BTreeMap<String, Category> = weighed.collect();
    for package in packages.values_mut() {
        package.weight = package.categories.iter().map(|category| categories[category].weight).sum();
    }
    (categories, members)
}

/// The table with the number of the present tables.
async fn current(store: &Store<AnyEngine>) -> Result<Table<String, u64, AnyEngine>, Error> {
    store.table_or_create("current", TableOptions::default()).await
}

/// Makes a table with these entries.
async fn fill<V: Serialize + serde::de::DeserializeOwned>(
    store: &Store<AnyEngine>,
    name: &str,
    entries: BTreeMap<String, V>,
    progress: impl FnMut(u64),
) -> Result<u64, Error> {
    let table: OrderedTable<String, V, AnyEngine> = store.create_ordered(name, TableOptions::default()).await?;
    table.bulk_load(stream::iter(entries), progress).await
}

/// Removes the tables of a catalog as far as they are there.
async fn destroy(store: &Store<AnyEngine>, number: u64) {
    for kind in ["packages", "categories", "members"] {
        let _ = store.destroy(&format!("{kind}-{number}")).await;
    }
}

const ANSWERS_MAX: usize = 20;
/// The packages of which all categories are compared.
const CANDIDATES_MAX: usize = 200;
/// The entries of the inverted table that one question reads.
const MEMBERS_MAX: u32 = 20_000;
const NEAREST_MAX: usize = 8;
/// Letters in which a wrong name may differ from a right one.
const DISTANCE_MAX: usize = 3;
const WRONG_LEN_MAX: usize = 64;
