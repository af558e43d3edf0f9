// A file system of RocksDB's, whose write-ahead logs are in `WalLog`s, and all other files where they would be.
#include "cairn_wal.h"

#include <cinttypes>
#include <cstring>

#include "wal_log.h"

using namespace rocksdb;
using cairn_wal::From;
using cairn_wal::Wal;
using cairn_wal::WalLog;

namespace {

constexpr char kLogName[] = "wal.cairn";
constexpr char kArchive[] = "archive";

class WalWriter : public FSWritableFile {
public:
	WalWriter(std::shared_ptr<WalLog> log, std::shared_ptr<Wal> wal, const FileOptions &options)
	    : FSWritableFile(options), log_(std::move(log)), wal_(std::move(wal))
	{
	}

	using FSWritableFile::Append;
	IOStatus Append(const Slice &data, const IOOptions &, IODebugContext *) override
	{
		return log_->Append(wal_.get(), data.data(), data.size());
	}
	// A record that is complete survives the process, as what was written to a file does.
	IOStatus Flush(const IOOptions &, IODebugContext *) override { return IOStatus::OK(); }
	IOStatus Sync(const IOOptions &, IODebugContext *) override { return log_->Force(*wal_); }
	IOStatus RangeSync(uint64_t, uint64_t, const IOOptions &, IODebugContext *) override
	{
		return log_->Force(*wal_);
	}
	bool IsSyncThreadSafe() const override { return true; }
	IOStatus Close(const IOOptions &, IODebugContext *) override { return IOStatus::OK(); }
	// There is nothing behind the end.
	IOStatus Truncate(uint64_t size, const IOOptions &, IODebugContext *) override
	{
		return size == wal_->size.load() ? IOStatus::OK() : IOStatus::NotSupported(log_->path(), "a shorter log file");
	}
	uint64_t GetFileSize(const IOOptions &, IODebugContext *) override { return wal_->size.load(); }

private:
	const std::shared_ptr<WalLog> log_;
	const std::shared_ptr<Wal> wal_;
};

class WalReader : public FSSequentialFile {
public:
	static IOStatus Open(std::shared_ptr<WalLog> log, std::shared_ptr<Wal> wal, std::unique_ptr<WalReader> *result)
	{
		cairn_iter *iter;
		IOStatus s = From(cairn_log_iterate(log->log(), wal->first, &iter), log->path());
		if (s.ok())
			result->reset(new WalReader(std::move(log), std::move(wal), iter));
		return s;
	}

	~WalReader() override { cairn_iter_close(iter_); }

	IOStatus Read(size_t n, const IOOptions &, Slice *result, char *scratch, IODebugContext *) override
	{
		size_t done = 0;
		IOStatus s = Go(n, scratch, &done);
		*result = Slice(scratch, done);
		return s;
	}
	IOStatus Skip(uint64_t n) override
	{
		size_t done = 0;
		return Go(n, nullptr, &done);
	}

private:
	WalReader(std::shared_ptr<WalLog> log, std::shared_ptr<Wal> wal, cairn_iter *iter)
	    : log_(std::move(log)), wal_(std::move(wal)), iter_(iter)
	{
	}

	// Goes on by `n` bytes, or to the end of the file as it is now.
	IOStatus Go(uint64_t n, char *to, size_t *done)
	{
		const uint64_t size = wal_->size.load();
		IOStatus s;
		while (*done < n && passed_ < size && (s = Fetch()).ok()) {
			const size_t piece = std::min<uint64_t>(n - *done, rest_.size());
			if (to != nullptr)
				memcpy(to + *done, rest_.data(), piece);
			rest_.remove_prefix(piece);
			*done += piece;
			passed_ += piece;
		}
		return s;
	}

	// Sees to it that there is something left of a record; the file is longer than what was passed. Only what is durable is read.
	IOStatus Fetch()
	{
		while (rest_.empty()) {
			cairn_record record;
			cairn_status status = cairn_iter_next(iter_, &record);
			if (status == CAIRN_END) {
				IOStatus s = log_->Force(*wal_);
				if (!s.ok())
					return s;
				status = cairn_iter_next(iter_, &record);
			}
			if (status != CAIRN_OK)
				return status == CAIRN_END ? IOStatus::Corruption(log_->path(), "a piece is missing")
							   : From(status, log_->path());
			cairn_wal::Header header;
			memcpy(&header, record.bytes, sizeof header);
			if (header.kind == cairn_wal::kData && header.number == wal_->number)
				rest_ = Slice(static_cast<const char *>(record.bytes) + sizeof header, record.len - sizeof header);
		}
		return IOStatus::OK();
	}

	const std::shared_ptr<WalLog> log_;
	const std::shared_ptr<Wal> wal_;
	cairn_iter *const iter_;
	// What is left of the record that the iterator stands at.
	Slice rest_;
	uint64_t passed_ = 0;
};

// For tools: RocksDB reads write-ahead logs in sequence.
class WalContents : public FSRandomAccessFile {
public:
	explicit WalContents(std::string contents) : contents_(std::move(contents)) {}

	IOStatus Read(uint64_t offset, size_t n, const IOOptions &, Slice *result, char *scratch, IODebugContext *) const override
	{
		const size_t from = std::min<uint64_t>(offset, contents_.size());
		*result = Slice(scratch, contents_.copy(scratch, n, from));
		return IOStatus::OK();
	}

private:
	const std::string contents_;
};

// A path without what does not matter in it.
std::string Plain(const std::string &path)
{
	std::string plain;
	for (char c : path)
		if (c != '/' || plain.empty() || plain.back() != '/')
			plain += c;
	if (plain.size() > 1 && plain.back() == '/')
		plain.pop_back();
	return plain;
}

// The directory whose log has the write-ahead logs of `dir`: the archive is inside of it.
std::string Home(const std::string &dir, bool *archived)
{
	const std::string plain = Plain(dir), inside = std::string("/") + kArchive;
	*archived = plain.size() > inside.size() && plain.compare(plain.size() - inside.size(), inside.size(), inside) == 0;
	return *archived ? plain.substr(0, plain.size() - inside.size()) : plain;
}

std::string NameOf(uint64_t number)
{
	char name[32];
	snprintf(name, sizeof name, "%06" PRIu64 ".log", number);
	return name;
}

// The name of a write-ahead log: its directory's home, its number.
struct Named {
	explicit Named(const std::string &path)
	{
		const std::string plain = Plain(path);
		const size_t slash = plain.rfind('/');
		const std::string name = slash == std::string::npos ? plain : plain.substr(slash + 1);
		is_wal = sscanf(name.c_str(), "%20" SCNu64, &number) == 1 && NameOf(number) == name;
		home = Home(slash == std::string::npos ? "." : plain.substr(0, slash), &archived);
	}

	bool is_wal, archived;
	uint64_t number = 0;
	std::string home;
};

class CairnWalFileSystem : public FileSystemWrapper {
public:
	CairnWalFileSystem(const std::shared_ptr<FileSystem> &base, const cairn_log_options &options, const CairnWalCopies &copies)
	    : FileSystemWrapper(base), options_(options), copies_(copies)
	{
	}

	static const char *kClassName() { return "CairnWalFileSystem"; }
	const char *Name() const override { return kClassName(); }

	IOStatus NewWritableFile(const std::string &path, const FileOptions &options, std::unique_ptr<FSWritableFile> *result,
				 IODebugContext *dbg) override
	{
		const Named named(path);
		if (!named.is_wal || named.archived)
			return target()->NewWritableFile(path, options, result, dbg);
		std::shared_ptr<WalLog> log;
		std::shared_ptr<Wal> wal;
		IOStatus s = Log(named.home, true, &log);
		if (s.ok())
			s = log->Create(named.number, &wal);
		if (s.ok())
			result->reset(new WalWriter(log, wal, options));
		return s;
	}

	IOStatus ReopenWritableFile(const std::string &path, const FileOptions &options, std::unique_ptr<FSWritableFile> *result,
				    IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(path, &place);
		if (!s.ok())
			return s;
		if (place.wal != nullptr)
			result->reset(new WalWriter(place.log, place.wal, options));
		else if (Named(path).is_wal && !target()->FileExists(path, IOOptions(), dbg).ok())
			return NewWritableFile(path, options, result, dbg);
		else
			return target()->ReopenWritableFile(path, options, result, dbg);
		return s;
	}

	// Space is used again without the file: the new one is empty.
	IOStatus ReuseWritableFile(const std::string &path, const std::string &old, const FileOptions &options,
				   std::unique_ptr<FSWritableFile> *result, IODebugContext *dbg) override
	{
		if (!Named(path).is_wal)
			return target()->ReuseWritableFile(path, old, options, result, dbg);
		IOStatus s = DeleteFile(old, IOOptions(), dbg);
		return s.ok() ? NewWritableFile(path, options, result, dbg) : s;
	}

	IOStatus NewSequentialFile(const std::string &path, const FileOptions &options, std::unique_ptr<FSSequentialFile> *result,
				   IODebugContext *dbg) override
	{
		Place place;
		std::unique_ptr<WalReader> reader;
		IOStatus s = Find(path, &place);
		if (s.ok() && place.wal == nullptr)
			return target()->NewSequentialFile(path, options, result, dbg);
		if (s.ok() && (s = WalReader::Open(place.log, place.wal, &reader)).ok())
			*result = std::move(reader);
		return s;
	}

	IOStatus NewRandomAccessFile(const std::string &path, const FileOptions &options,
				     std::unique_ptr<FSRandomAccessFile> *result, IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(path, &place);
		if (s.ok() && place.wal == nullptr)
			return target()->NewRandomAccessFile(path, options, result, dbg);
		std::unique_ptr<FSSequentialFile> reader;
		if (!s.ok() || !(s = NewSequentialFile(path, options, &reader, dbg)).ok())
			return s;
		std::string contents(place.wal->size.load(), '\0');
		Slice read;
		s = reader->Read(contents.size(), IOOptions(), &read, &contents[0], dbg);
		contents.resize(read.size());
		if (s.ok())
			result->reset(new WalContents(std::move(contents)));
		return s;
	}

	IOStatus FileExists(const std::string &path, const IOOptions &options, IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(path, &place);
		return !s.ok() || place.wal != nullptr ? s : target()->FileExists(path, options, dbg);
	}

	IOStatus GetFileSize(const std::string &path, const IOOptions &options, uint64_t *size, IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(path, &place);
		if (s.ok() && place.wal == nullptr)
			return target()->GetFileSize(path, options, size, dbg);
		if (s.ok())
			*size = place.wal->size.load();
		return s;
	}

	IOStatus GetFileModificationTime(const std::string &path, const IOOptions &options, uint64_t *time,
					 IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(path, &place);
		if (s.ok() && place.wal == nullptr)
			return target()->GetFileModificationTime(path, options, time, dbg);
		if (s.ok())
			*time = place.wal->time;
		return s;
	}

	IOStatus GetChildren(const std::string &dir, const IOOptions &options, std::vector<std::string> *result,
			     IODebugContext *dbg) override
	{
		bool archived;
		std::shared_ptr<WalLog> log;
		IOStatus s = target()->GetChildren(dir, options, result, dbg);
		const std::string home = Home(dir, &archived);
		if (!s.ok() || !(s = Log(home, false, &log)).ok() || log == nullptr)
			return s;
		std::vector<std::string> others;
		const std::vector<uint64_t> numbers = log->List(archived);
		for (auto &name : *result)
			if (name != kLogName && (!Named(name).is_wal || log->Find(Named(name).number, archived) == nullptr))
				others.push_back(name);
		for (uint64_t number : numbers)
			others.push_back(NameOf(number));
		*result = std::move(others);
		return s;
	}

	// By the functions above, file by file.
	IOStatus GetChildrenFileAttributes(const std::string &dir, const IOOptions &options, std::vector<FileAttributes> *result,
					   IODebugContext *dbg) override
	{
		return FileSystem::GetChildrenFileAttributes(dir, options, result, dbg);
	}

	IOStatus DeleteFile(const std::string &path, const IOOptions &options, IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(path, &place);
		if (s.ok() && place.wal == nullptr)
			return target()->DeleteFile(path, options, dbg);
		return s.ok() ? place.log->Delete(*place.wal) : s;
	}

	IOStatus Truncate(const std::string &path, size_t size, const IOOptions &options, IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(path, &place);
		if (s.ok() && place.wal == nullptr)
			return target()->Truncate(path, size, options, dbg);
		return s.ok() && size != place.wal->size.load() ? IOStatus::NotSupported(path, "a shorter log file") : s;
	}

	// A file goes to the archive; a directory takes its log along.
	IOStatus RenameFile(const std::string &from, const std::string &to, const IOOptions &options, IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(from, &place);
		if (!s.ok())
			return s;
		if (place.wal == nullptr) {
			s = Forget(Plain(from), nullptr);
			return s.ok() ? target()->RenameFile(from, to, options, dbg) : s;
		}
		const Named named(to);
		if (!named.is_wal || named.number != place.wal->number || named.home != Named(from).home || !named.archived)
			return IOStatus::NotSupported(from, "a write-ahead log can be renamed to the archive only");
		return place.log->Archive(place.wal);
	}

	// Others are copied, then.
	IOStatus LinkFile(const std::string &from, const std::string &to, const IOOptions &options, IODebugContext *dbg) override
	{
		Place place;
		IOStatus s = Find(from, &place);
		if (s.ok() && place.wal == nullptr)
			return target()->LinkFile(from, to, options, dbg);
		return s.ok() ? IOStatus::NotSupported(from, "a write-ahead log has no links") : s;
	}

	// A log without files goes with its directory.
	IOStatus DeleteDir(const std::string &dir, const IOOptions &options, IODebugContext *dbg) override
	{
		std::shared_ptr<WalLog> log;
		const std::string home = Plain(dir), path = home + "/" + kLogName;
		bool archived;
		if (Home(dir, &archived) == home) {
			IOStatus s = Log(home, false, &log);
			if (s.ok() && log != nullptr && log->List(false).empty() && log->List(true).empty()) {
				s = Forget(home, &log);
				if (s.ok())
					s = target()->DeleteFile(path, options, dbg);
			}
			if (!s.ok())
				return s;
		}
		return target()->DeleteDir(dir, options, dbg);
	}

	IOStatus Counts(const std::string &dir, cairn_log_counts *counts)
	{
		std::shared_ptr<WalLog> log;
		IOStatus s = Log(Plain(dir), false, &log);
		if (!s.ok() || log == nullptr)
			return s.ok() ? IOStatus::NotFound(dir, "has no write-ahead log") : s;
		return From(cairn_log_get_counts(log->log(), counts, sizeof *counts), dir);
	}

private:
	// A file of a log; none if it is another one.
	struct Place {
		std::shared_ptr<WalLog> log;
		std::shared_ptr<Wal> wal;
	};

	IOStatus Find(const std::string &path, Place *place)
	{
		const Named named(path);
		if (!named.is_wal)
			return IOStatus::OK();
		IOStatus s = Log(named.home, false, &place->log);
		if (s.ok() && place->log != nullptr)
			place->wal = place->log->Find(named.number, named.archived);
		return s;
	}

	// The log of a directory; none if there is none, and none is to be made.
	IOStatus Log(const std::string &home, bool make, std::shared_ptr<WalLog> *result)
	{
		std::lock_guard<std::mutex> lock(mutex_);
		auto found = logs_.find(home);
		if (found != logs_.end()) {
			*result = found->second;
			return IOStatus::OK();
		}
		const std::string path = home + "/" + kLogName;
		const IOStatus there = target()->FileExists(path, IOOptions(), nullptr);
		if (!there.ok() && !make)
			return there.IsNotFound() ? IOStatus::OK() : there;
		if (!copies_.addresses.empty() && !logs_.empty())
			return IOStatus::NotSupported(home, "the copies are those of another directory's log: another file system for it");
		IOStatus s = WalLog::Open(path, options_, copies_, there.ok(), result);
		if (s.ok())
			logs_[home] = *result;
		return s;
	}

	// Closes the log of a directory, if it is open and nobody else but `also` has it.
	IOStatus Forget(const std::string &home, std::shared_ptr<WalLog> *also)
	{
		std::lock_guard<std::mutex> lock(mutex_);
		auto found = logs_.find(home);
		if (also != nullptr)
			also->reset();
		if (found == logs_.end())
			return IOStatus::OK();
		if (found->second.use_count() > 1)
			return IOStatus::Busy(home, "its write-ahead log is in use");
		logs_.erase(found);
		return IOStatus::OK();
	}

	const cairn_log_options options_;
	const CairnWalCopies copies_;
	std::mutex mutex_;
	std::map<std::string, std::shared_ptr<WalLog>> logs_;
};

}

std::shared_ptr<FileSystem> NewCairnWalFileSystem(const std::shared_ptr<FileSystem> &base, const cairn_log_options &options)
{
	return std::make_shared<CairnWalFileSystem>(base, options, CairnWalCopies());
}

std::shared_ptr<FileSystem> NewCairnWalFileSystem(const std::shared_ptr<FileSystem> &base, const cairn_log_options &options,
						  const CairnWalCopies &copies)
{
	return std::make_shared<CairnWalFileSystem>(base, options, copies);
}

IOStatus GetCairnWalCounts(FileSystem *files, const std::string &directory, cairn_log_counts *counts)
{
	auto *ours = dynamic_cast<CairnWalFileSystem *>(files);
	return ours != nullptr ? ours->Counts(directory, counts) : IOStatus::InvalidArgument("another file system");
}
