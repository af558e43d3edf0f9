/*
 * RocksDB with one write-ahead log or another, everything else the same: its own, its own in files that are used again, or a Cairn log. Every put syncs it. The options
 * are those of rocksdb.c.
 */
#include <cairn_wal.h>
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/table.h>

#include <cstring>
#include <sstream>

using namespace rocksdb;

namespace {

enum { OWN, RECYCLED, CAIRN };

struct Database {
	std::string dir;
	std::shared_ptr<FileSystem> files;
	std::unique_ptr<Env> env;
	std::unique_ptr<DB> db;
};

int judged(const Status &status, char *message, size_t room)
{
	if (status.ok())
		return 0;
	std::strncpy(message, status.ToString().c_str(), room - 1);
	message[room - 1] = 0;
	return 1;
}

/* Three times as much as that goes through the log, and leaves it: whoever uses space again has used it. */
Status warmed(DB *db, size_t bytes)
{
	const std::string value(64 << 10, 'w');
	Status s;
	for (int lap = 0; s.ok() && lap < 3; lap++) {
		for (size_t at = 0; s.ok() && at < bytes; at += value.size())
			s = db->Put(WriteOptions(), "warm" + std::to_string(at), value);
		if (s.ok())
			s = db->Flush(FlushOptions());
	}
	return s;
}

/* `addresses` is a list with commas. */
CairnWalCopies named(const char *addresses, const char *secret, size_t secret_bytes)
{
	CairnWalCopies copies;
	std::stringstream list(addresses);
	for (std::string address; std::getline(list, address, ',');)
		copies.addresses.push_back(address);
	copies.secret.assign(secret, secret_bytes);
	copies.timeout_us = 20000000; /* whoever is measured on a loaded machine is slow, and not gone */
	return copies;
}

Status opened(Database *database, int wal, const CairnWalCopies &copies, uint64_t log_bytes, size_t warm_bytes)
{
	cairn_log_options log;
	if (cairn_log_options_init(&log, sizeof log) != CAIRN_OK)
		return Status::IOError(cairn_last_error());
	log.bytes = log_bytes;
	database->files = wal == CAIRN ? NewCairnWalFileSystem(FileSystem::Default(), log, copies) : FileSystem::Default();
	database->env = NewCompositeEnv(database->files);
	Options options;
	options.env = database->env.get();
	options.create_if_missing = true;
	options.IncreaseParallelism(2);
	options.compression = kNoCompression;
	options.write_buffer_size = 256 << 20;
	options.recycle_log_file_num = wal == RECYCLED ? 4 : 0;
	BlockBasedTableOptions table;
	table.block_cache = NewLRUCache(64 << 20);
	table.filter_policy.reset(NewBloomFilterPolicy(10, false));
	options.table_factory.reset(NewBlockBasedTableFactory(table));
	DB *db;
	Status s = DB::Open(options, database->dir, &db);
	if (!s.ok())
		return s;
	database->db.reset(db);
	return warmed(db, warm_bytes);
}

}

extern "C" {

Database *rw_open(const char *dir, int wal, const char *addresses, const char *secret, size_t secret_bytes, uint64_t log_bytes,
		  size_t warm_bytes, char *message, size_t room)
{
	std::unique_ptr<Database> database(new Database);
	database->dir = dir;
	if (judged(opened(database.get(), wal, named(addresses, secret, secret_bytes), log_bytes, warm_bytes), message, room) != 0) {
		database->db.reset();
		return nullptr;
	}
	return database.release();
}

void rw_close(Database *database)
{
	database->db.reset();
	delete database;
}

int rw_put(Database *database, const char *key, size_t key_bytes, const char *value, size_t bytes, char *message, size_t room)
{
	WriteOptions options;
	options.sync = true;
	return judged(database->db->Put(options, Slice(key, key_bytes), Slice(value, bytes)), message, room);
}

/* Copies what there is room for; `bytes` gets the length, SIZE_MAX if there is none. */
int rw_get(Database *database, const char *key, size_t key_bytes, char *out, size_t out_room, size_t *bytes, char *message,
	   size_t room)
{
	PinnableSlice value;
	const Status s = database->db->Get(ReadOptions(), database->db->DefaultColumnFamily(), Slice(key, key_bytes), &value);
	*bytes = s.IsNotFound() ? SIZE_MAX : value.size();
	if (s.IsNotFound())
		return 0;
	std::memcpy(out, value.data(), std::min(out_room, value.size()));
	return judged(s, message, room);
}

/* What a Cairn log has cost so far: barriers, and calls of fdatasync. 1 if it is none. */
int rw_costs(Database *database, uint64_t *barriers, uint64_t *syncs, uint64_t *domain)
{
	cairn_log_counts counts;
	if (!GetCairnWalCounts(database->files.get(), database->dir, &counts).ok())
		return 1;
	*barriers = counts.barriers;
	*syncs = counts.syncs;
	*domain = counts.domain;
	return 0;
}

}
