// RocksDB with a Cairn log as its write-ahead log.
#pragma once

#include <cairn.h>
#include <rocksdb/file_system.h>

#include <memory>
#include <string>
#include <vector>

// Machines that have a copy of the log beside this one's: a sync returns when a quorum of all copies has what was
// appended. They are served by `cairn log-replica`, and are empty when the log is made.
struct CairnWalCopies {
	// Hosts and ports.
	std::vector<std::string> addresses;
	// 16 random bytes or more, by which all of them know each other.
	std::string secret;
	// How many copies, this machine's among them; 0: all.
	uint32_t quorum = 0;
	// A copy that has not acknowledged for so many microseconds is given up.
	uint64_t timeout_us = 2000000;
};

// A file system like `base`, but for write-ahead logs. These are records of one Cairn log in each directory,
// `wal.cairn`: an append is a record without a barrier, a sync is a force, and a file that is deleted makes room for
// others. `options` are those of the log, which grows when it is full.
//
//     options.env = env = NewCompositeEnv(NewCairnWalFileSystem(FileSystem::Default(), log_options));
//
// and the database is as it was. Write-ahead logs that it has in files already are read, and deleted when they are not
// needed. To go back to `base`, flush all memtables and close the database first: nobody else knows what `wal.cairn`
// holds. With Options::track_and_verify_wals_in_manifest RocksDB refuses to open without it.
std::shared_ptr<rocksdb::FileSystem> NewCairnWalFileSystem(const std::shared_ptr<rocksdb::FileSystem> &base,
							   const cairn_log_options &options);

// The same, of one database: its log is on several machines, and does not grow, so `options.bytes` must hold what
// memtables do, about twice. All other files are on this machine, or wherever `base` puts them.
std::shared_ptr<rocksdb::FileSystem> NewCairnWalFileSystem(const std::shared_ptr<rocksdb::FileSystem> &base,
							   const cairn_log_options &options, const CairnWalCopies &copies);

// Counts of the log in a directory, for one of these file systems.
rocksdb::IOStatus GetCairnWalCounts(rocksdb::FileSystem *files, const std::string &directory, cairn_log_counts *counts);
