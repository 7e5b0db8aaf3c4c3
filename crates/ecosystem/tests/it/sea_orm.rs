//! sea-orm with SQLite: entities and transactions.

#![expect(unreachable_pub, reason = "the macro of sea-orm makes public items of the entity")]

use sea_orm::entity::prelude::*;
use sea_orm::sea_query::Expr;
use sea_orm::{ConnectOptions, Database, QueryOrder, Schema, Set, TransactionTrait};

use crate::LIMIT;
use crate::whole_runtime::{assert_both, run};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "accounts")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub name: String,
    pub cents: i64,
}

#[derive(Clone, Copy, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}

async fn connect(folder: &std::path::Path) -> DatabaseConnection {
    let url = format!("sqlite://{}?mode=rwc", folder.join("accounts.sqlite").display());
    let mut options = ConnectOptions::new(url);
    options.max_connections(4).acquire_timeout(LIMIT).sqlx_logging(false);
    let database = Database::connect(options).await.unwrap();
    let create = Schema::new(database.get_database_backend()).create_table_from_entity(Entity);
    database.execute(database.get_database_backend().build(&create)).await.unwrap();
    database
}

/// Moves cents from ada to bob.
async fn transfer(database: &DatabaseConnection, cents: i64) -> Result<(), DbErr> {
    let transaction = database.begin().await?;
    for (name, change) in [("ada", -cents), ("bob", cents)] {
        let update = Entity::update_many().col_expr(Column::Cents, Expr::col(Column::Cents).add(change));
        let updated = update.filter(Column::Name.eq(name)).exec(&transaction).await?;
        assert_eq!(updated.rows_affected, 1);
        assert_both();
    }
    // One that is dropped is rolled back.
    if cents % 2 == 0 { transaction.commit().await } else { Ok(()) }
}

#[test]
fn sea_orm_with_sqlite() {
    run(|| async {
        let folder = tempfile::tempdir().unwrap();
        let database = connect(folder.path()).await;
        let accounts = [("ada", 1_000), ("bob", 0)];
        let rows = accounts.map(|(name, cents)| ActiveModel { name: Set(name.to_owned()), cents: Set(cents) });
        Entity::insert_many(rows).exec(&database).await.unwrap();
        let tasks: Vec<_> = (1..=20)
            .map(|cents| {
                let database = database.clone();
                dapple::spawn(async move { transfer(&database, cents).await })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }
        let all = Entity::find().order_by_asc(Column::Name).all(&database).await.unwrap();
        // 2 + 4 + … + 20.
        let expected = [("ada", 890), ("bob", 110)].map(|(name, cents)| Model { name: name.to_owned(), cents });
        assert_eq!(all, expected);
        database.close().await.unwrap();
    });
}
