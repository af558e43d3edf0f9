#include "wal_log.h"

#include <cstring>
#include <ctime>

namespace cairn_wal {

using rocksdb::IOStatus;

IOStatus From(cairn_status status, const std::string &path)
{
	const char *said = cairn_last_error();
	switch (cairn_group_of(status)) {
	case CAIRN_FINE:
		return IOStatus::OK();
	case CAIRN_MAKE_ROOM:
		return IOStatus::NoSpace(path, said);
	case CAIRN_REPAIR:
		return IOStatus::Corruption(path, said);
	default:
		return IOStatus::IOError(path, said);
	}
}

namespace {

cairn_status Name(const std::string &path, const CairnWalCopies &copies, cairn_replicas *replicas)
{
	cairn_status status = cairn_replicas_local(replicas, path.c_str());
	for (const std::string &address : copies.addresses)
		status = status == CAIRN_OK ? cairn_replicas_at(replicas, address.c_str()) : status;
	if (status == CAIRN_OK)
		status = cairn_replicas_secret(replicas, copies.secret.data(), copies.secret.size());
	if (status == CAIRN_OK && copies.quorum > 0)
		status = cairn_replicas_quorum(replicas, copies.quorum);
	return status == CAIRN_OK ? cairn_replicas_timeout(replicas, copies.timeout_us) : status;
}

// The error is the last one that the thread had: freeing the list has none.
cairn_status OpenCopies(const std::string &path, const cairn_log_options &options, const CairnWalCopies &copies, bool there,
			cairn_log **log)
{
	cairn_replicas *replicas;
	cairn_status status = cairn_replicas_new(&replicas);
	if (status != CAIRN_OK)
		return status;
	if ((status = Name(path, copies, replicas)) == CAIRN_OK)
		status = there ? cairn_log_open_replicated(replicas, &options, log)
			       : cairn_log_create_replicated(replicas, &options, log);
	cairn_replicas_free(replicas);
	return status;
}

}

IOStatus WalLog::Open(const std::string &path, const cairn_log_options &options, const CairnWalCopies &copies, bool there,
		      std::shared_ptr<WalLog> *result)
{
	cairn_log *log = nullptr;
	IOStatus s;
	if (!copies.addresses.empty())
		s = From(OpenCopies(path, options, copies, there, &log), path);
	else
		s = From(there ? cairn_log_open(path.c_str(), &options, &log)
			       : cairn_log_create(path.c_str(), &options, &log), path);
	if (!s.ok())
		return s;
	std::shared_ptr<WalLog> opened(new WalLog(path, log, copies.addresses.empty()));
	if ((s = opened->Recover()).ok())
		*result = std::move(opened);
	return s;
}

WalLog::~WalLog()
{
	// If that fails, the next open recovers it.
	cairn_log_close(log_);
}

std::shared_ptr<Wal> WalLog::Find(uint64_t number, bool archived)
{
	std::lock_guard<std::mutex> lock(mutex_);
	auto found = files_.find(number);
	return found != files_.end() && found->second->archived == archived ? found->second : nullptr;
}

std::vector<uint64_t> WalLog::List(bool archived)
{
	std::lock_guard<std::mutex> lock(mutex_);
	std::vector<uint64_t> numbers;
	for (auto &file : files_)
		if (file.second->archived == archived)
			numbers.push_back(file.first);
	return numbers;
}

IOStatus WalLog::Create(uint64_t number, std::shared_ptr<Wal> *result)
{
	std::lock_guard<std::mutex> lock(mutex_);
	const uint64_t time = static_cast<uint64_t>(std::time(nullptr));
	uint64_t lsn;
	IOStatus s = Record(kCreate, number, &time, sizeof time, &lsn);
	if (s.ok())
		files_[number] = *result = std::make_shared<Wal>(number, lsn, time);
	return s;
}

IOStatus WalLog::Delete(const Wal &wal)
{
	std::lock_guard<std::mutex> lock(mutex_);
	uint64_t lsn;
	IOStatus s = Record(kDelete, wal.number, nullptr, 0, &lsn);
	if (!s.ok())
		return s;
	auto found = files_.find(wal.number);
	if (found != files_.end() && found->second->first == wal.first)
		files_.erase(found);
	return CleanUp();
}

IOStatus WalLog::Archive(const std::shared_ptr<Wal> &wal)
{
	std::lock_guard<std::mutex> lock(mutex_);
	uint64_t lsn;
	IOStatus s = Record(kArchived, wal->number, nullptr, 0, &lsn);
	wal->archived = wal->archived || s.ok();
	return s;
}

IOStatus WalLog::Append(Wal *wal, const char *data, size_t len)
{
	while (len > 0) {
		const size_t piece = std::min(len, record_max_ - sizeof(Header));
		uint64_t lsn;
		IOStatus s = grows_ ? IOStatus::OK() : LeaveRoom(piece);
		if (s.ok())
			s = Record(kData, wal->number, data, piece, &lsn);
		if (!s.ok())
			return s;
		wal->last.store(lsn);
		wal->size.fetch_add(piece);
		data += piece;
		len -= piece;
	}
	return IOStatus::OK();
}

IOStatus WalLog::Force(const Wal &wal)
{
	return From(cairn_log_force_now(log_, wal.last.load()), path_);
}

IOStatus WalLog::Record(Kind kind, uint64_t number, const void *data, size_t len, uint64_t *lsn)
{
	const Header header{kind, 0, number};
	cairn_reservation *place;
	void *bytes;
	cairn_status status = cairn_log_reserve(log_, sizeof header + len, &place, &bytes, lsn);
	if (status == CAIRN_FULL)
		status = ReserveInMore(sizeof header + len, &place, &bytes, lsn);
	if (status != CAIRN_OK)
		return From(status, path_);
	memcpy(bytes, &header, sizeof header);
	if (len > 0)
		memcpy(static_cast<char *>(bytes) + sizeof header, data, len);
	return From(cairn_reservation_complete(place), path_);
}

// A log with copies does not grow. Its last segments are for records that say which files come and go: without room for those a full log is never emptied, as RocksDB makes a new file before
// it deletes the old ones, also when it opens a database.
IOStatus WalLog::LeaveRoom(size_t len)
{
	for (bool again : {true, false}) {
		cairn_log_counts counts;
		cairn_status status = cairn_log_get_counts(log_, &counts, sizeof counts);
		if (status != CAIRN_OK)
			return From(status, path_);
		if (counts.live_bytes + len + kKept * counts.segment_bytes <= counts.capacity)
			return IOStatus::OK();
		// What was truncated counts until its space is taken back.
		if (again && (status = cairn_log_reclaim(log_)) != CAIRN_OK)
			return From(status, path_);
	}
	return IOStatus::NoSpace(path_, "the log, which has copies and does not grow, is full; open the database again, which flushes the memtables, then flush them earlier or make a larger log");
}

// Twice the room, unless another thread has made some.
cairn_status WalLog::ReserveInMore(size_t len, cairn_reservation **place, void **bytes, uint64_t *lsn)
{
	std::lock_guard<std::mutex> lock(growing_);
	cairn_status status = cairn_log_reserve(log_, len, place, bytes, lsn);
	cairn_log_counts counts;
	if (status != CAIRN_FULL || (status = cairn_log_get_counts(log_, &counts, sizeof counts)) != CAIRN_OK)
		return status;
	status = cairn_log_grow(log_, counts.capacity, nullptr);
	return status == CAIRN_OK ? cairn_log_reserve(log_, len, place, bytes, lsn) : status;
}

// Nobody needs what is before the oldest file.
IOStatus WalLog::CleanUp()
{
	uint64_t through;
	cairn_status status = cairn_log_forced(log_, &through);
	for (auto &file : files_)
		through = std::min(through, file.second->first - 1);
	return From(status != CAIRN_OK ? status : cairn_log_truncate_to(log_, through), path_);
}

IOStatus WalLog::Recover()
{
	cairn_log_counts counts;
	cairn_status status = cairn_log_get_counts(log_, &counts, sizeof counts);
	cairn_iter *iter;
	if (status != CAIRN_OK || (status = cairn_log_iterate(log_, 0, &iter)) != CAIRN_OK)
		return From(status, path_);
	// Less is left of a segment for what the log itself puts before a record.
	record_max_ = counts.segment_bytes - 64;
	IOStatus s;
	cairn_record record;
	while (s.ok() && (status = cairn_iter_next(iter, &record)) == CAIRN_OK)
		s = Take(record);
	if (s.ok() && status != CAIRN_END)
		s = From(status, path_);
	cairn_iter_close(iter);
	return s.ok() ? CleanUp() : s;
}

IOStatus WalLog::Take(const cairn_record &record)
{
	Header header;
	uint64_t time = 0;
	if (record.len < sizeof header)
		return IOStatus::Corruption(path_, "holds other records than write-ahead logs");
	memcpy(&header, record.bytes, sizeof header);
	const size_t rest = record.len - sizeof header;
	auto found = files_.find(header.number);
	const bool there = found != files_.end();
	switch (header.kind) {
	case kCreate:
		memcpy(&time, static_cast<const char *>(record.bytes) + sizeof header, std::min(sizeof time, rest));
		files_[header.number] = std::make_shared<Wal>(header.number, record.lsn, time);
		return IOStatus::OK();
	case kData:
		if (there) {
			found->second->last.store(record.lsn);
			found->second->size.fetch_add(rest);
		}
		return IOStatus::OK();
	case kArchived:
		if (there)
			found->second->archived = true;
		return IOStatus::OK();
	case kDelete:
		files_.erase(header.number);
		return IOStatus::OK();
	default:
		return IOStatus::Corruption(path_, "holds a record of an unknown kind: a newer version made it");
	}
}

}
