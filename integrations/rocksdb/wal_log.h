// What RocksDB takes for its write-ahead log files are records of one log in each directory:
//
//   header: kind, number of the file | a piece of the file
//
// A file is its CREATE record and the DATA records behind it, until DELETE. RocksDB appends what one group of writers
// has to say in one call, so that is one record. Records become durable in order, for all files together. The oldest
// file that is there keeps the log from that file's first record on; what is before is cleaned up. So pieces without a
// CREATE are of a file that was deleted, whose first record was in space that is used again.
#pragma once

#include "cairn_wal.h"
#include <rocksdb/io_status.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cairn_wal {

enum Kind : uint32_t { kCreate = 1, kData, kDelete, kArchived };

struct Header {
	uint32_t kind;
	uint32_t reserved;
	uint64_t number;
};

// What a call of the log came to.
rocksdb::IOStatus From(cairn_status status, const std::string &path);

// One write-ahead log file.
struct Wal {
	Wal(uint64_t number_, uint64_t first_, uint64_t time_) : number(number_), first(first_), last(first_), time(time_) {}

	const uint64_t number;
	// Its CREATE record.
	const uint64_t first;
	// Its last record, and the bytes through there.
	std::atomic<uint64_t> last;
	std::atomic<uint64_t> size{0};
	// When it was made, in seconds of Unix time.
	const uint64_t time;
	bool archived = false;
};

// The log of one directory. All threads may use it at once.
class WalLog {
public:
	static rocksdb::IOStatus Open(const std::string &path, const cairn_log_options &options,
				      const CairnWalCopies &copies, bool there, std::shared_ptr<WalLog> *result);
	~WalLog();

	// None if there is none.
	std::shared_ptr<Wal> Find(uint64_t number, bool archived);
	std::vector<uint64_t> List(bool archived);
	// An empty file; one of that number is no more.
	rocksdb::IOStatus Create(uint64_t number, std::shared_ptr<Wal> *result);
	// It is gone at once, and after a crash if a later record was forced. If not, RocksDB deletes it again.
	rocksdb::IOStatus Delete(const Wal &wal);
	rocksdb::IOStatus Archive(const std::shared_ptr<Wal> &wal);
	// Without a barrier. One thread at a time appends to a file, as RocksDB does it.
	rocksdb::IOStatus Append(Wal *wal, const char *data, size_t len);
	// What was appended to the file is durable.
	rocksdb::IOStatus Force(const Wal &wal);

	cairn_log *log() const { return log_; }
	const std::string &path() const { return path_; }

private:
	WalLog(const std::string &path, cairn_log *log, bool grows) : path_(path), log_(log), grows_(grows) {}

	rocksdb::IOStatus Record(Kind kind, uint64_t number, const void *data, size_t len, uint64_t *lsn);
	rocksdb::IOStatus LeaveRoom(size_t len);
	cairn_status ReserveInMore(size_t len, cairn_reservation **place, void **bytes, uint64_t *lsn);
	rocksdb::IOStatus CleanUp();
	rocksdb::IOStatus Recover();
	rocksdb::IOStatus Take(const cairn_record &record);

	const std::string path_;
	// Segments that data leave: one that is begun, and one for what is to come.
	static constexpr uint64_t kKept = 2;

	cairn_log *const log_;
	const bool grows_;
	size_t record_max_ = 0;
	std::mutex mutex_;
	std::mutex growing_;
	std::map<uint64_t, std::shared_ptr<Wal>> files_;
};

}
