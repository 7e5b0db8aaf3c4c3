//! Stores by URL.

use dapple_store::{Store, StoreOptions, StoreUrl, Table, TableOptions};

use crate::support::run;

fn url(text: &str) -> Result<StoreUrl, String> {
    text.parse().map_err(|error: dapple_store::StoreUrlError| error.to_string())
}

#[test]
fn a_url_names_the_engine_and_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    let text = format!("redb:{}", place.display());
    let found = url(&text).unwrap();
    assert_eq!((found.to_string(), found.directory(), found.is_there()), (text, Some(place.as_path()), Ok(false)));
    run(async {
        let store = Store::open(found.engine(), StoreOptions::default()).await.unwrap();
        let table: Table<u8, u8, _> = store.table_or_create("t", TableOptions::default()).await.unwrap();
        table.put(&1, &2).await.unwrap();
    });
    assert_eq!(found.is_there(), Ok(true));
    run(async {
        let url = url(&format!("redb://{}", place.display())).unwrap();
        let store = Store::open(url.engine(), StoreOptions::default()).await.unwrap();
        let table: Table<u8, u8, _> = store.table("t").await.unwrap();
        assert_eq!(table.get(&1).await.unwrap(), Some(2));
    });
    let other = url(&format!("fjall:{}", place.display())).unwrap_err();
    match cfg!(feature = "fjall") {
        true => assert!(other.contains("holds a store of redb: name it `redb:"), "{other}"),
        false => assert!(other.contains("built without"), "{other}"),
    }
}

#[test]
fn other_texts_are_refused_with_the_form_of_a_url() {
    for text in ["", "data", "redb:", "redb://", "rocks:data"] {
        let error = url(text).unwrap_err();
        assert!(error.contains("a store is `redb:DIR` or `fjall:DIR`"), "{text}: {error}");
    }
}
