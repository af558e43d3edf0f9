// What the file system promises, seen through RocksDB: a database is killed again and again while threads write to it,
// and holds afterwards what it had acknowledged, and of what it had not a prefix. Then what RocksDB does with its logs
// beside writing them.
//
//   wal_test DIRECTORY [KILLS [ADDRESS [ANOTHER]]]
//
// With the address of an empty copy, that `cairn log-replica` serves, one of the databases has its log there, too; with that of another one, one whose log is full.
#include "cairn_wal.h"

#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>
#include <rocksdb/transaction_log.h>
#include <rocksdb/utilities/checkpoint.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <thread>

using namespace rocksdb;

namespace {

#define CHECK(condition)                                                                            \
	do {                                                                                        \
		if (!(condition)) {                                                                 \
			std::cerr << __FILE__ << ':' << __LINE__ << ": not so: " << #condition << std::endl; \
			_exit(1);                                                                   \
		}                                                                                   \
	} while (0)

#define OK(call)                                                                                    \
	do {                                                                                        \
		Status s_ = (call);                                                                 \
		if (!s_.ok()) {                                                                     \
			std::cerr << __FILE__ << ':' << __LINE__ << ": " << #call << ": " << s_.ToString() << std::endl; \
			_exit(1);                                                                   \
		}                                                                                   \
	} while (0)

constexpr int kThreads = 4;

struct How {
	const char *name;
	bool sync, manual;
	size_t recycle;
	bool pipelined, track;
	uint64_t log_bytes;
	const char *address = nullptr;
};

constexpr How kWays[] = {
	{"sync", true, false, 0, false, true, 16 << 20},
	{"sync, recycled", true, false, 2, false, false, 16 << 20},
	{"sync, pipelined, log too small", true, false, 0, true, false, 256 << 10},
	{"no sync", false, false, 0, false, false, 16 << 20},
	{"no sync, recycled, log too small", false, false, 2, false, false, 256 << 10},
	{"flushed by hand", false, true, 0, false, false, 16 << 20},
};

// What the threads of the killed process have had acknowledged: shared with their parent.
std::atomic<uint64_t> *acknowledged;

struct Database {
	explicit Database(const std::string &where, const How &how = kWays[0], bool cairn = true) : dir(where)
	{
		cairn_log_options log;
		CHECK(cairn_log_options_init(&log, sizeof log) == CAIRN_OK);
		log.bytes = how.log_bytes;
		CairnWalCopies copies;
		if (how.address != nullptr)
			copies.addresses = {how.address};
		copies.secret = "what all of them know";
		copies.timeout_us = 60 * 1000 * 1000;
		files = cairn ? NewCairnWalFileSystem(FileSystem::Default(), log, copies) : FileSystem::Default();
		env = NewCompositeEnv(files);
		options.env = env.get();
		options.create_if_missing = true;
		// Memtables are full, and logs change, every few thousand writes.
		options.write_buffer_size = 512 << 10;
		options.recycle_log_file_num = how.recycle;
		options.manual_wal_flush = how.manual;
		options.enable_pipelined_write = how.pipelined;
		options.track_and_verify_wals_in_manifest = how.track;
	}
	~Database() { Close(); }

	void Open() { OK(DB::Open(options, dir, &db)); }
	void Close()
	{
		delete db;
		db = nullptr;
	}

	Options options;
	std::string dir;
	std::shared_ptr<FileSystem> files;
	std::unique_ptr<Env> env;
	DB *db = nullptr;
};

std::string KeyOf(int thread, uint64_t number)
{
	char key[32];
	snprintf(key, sizeof key, "t%d:%010llu", thread, static_cast<unsigned long long>(number));
	return key;
}

std::string ValueOf(int thread, uint64_t number)
{
	// Now and then one that is longer than the buffer that RocksDB collects in.
	const size_t len = number % 500 == 499 ? 150000 : number * 31 % 300;
	return KeyOf(thread, number) + std::string(len, static_cast<char>('a' + number % 26));
}

// The last number of each thread: all from 1 to there have their values, and no other keys are there.
std::vector<uint64_t> Numbers(DB *db)
{
	std::vector<uint64_t> last(kThreads, 0);
	std::unique_ptr<Iterator> keys(db->NewIterator(ReadOptions()));
	for (keys->SeekToFirst(); keys->Valid(); keys->Next()) {
		const std::string key = keys->key().ToString();
		const int thread = key[1] - '0';
		CHECK(thread >= 0 && thread < kThreads);
		last[thread]++;
		CHECK(key == KeyOf(thread, last[thread]));
		CHECK(keys->value() == ValueOf(thread, last[thread]));
	}
	OK(keys->status());
	return last;
}

// Runs `body` in a process of its own, as RocksDB has threads that do not survive a fork.
template <typename Body> pid_t Start(Body body)
{
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		body();
		_exit(0);
	}
	return child;
}

template <typename Body> void Run(Body body)
{
	int status;
	const pid_t child = Start(body);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

void Write(const std::string &dir, const How &how)
{
	Database database(dir, how);
	database.Open();
	const std::vector<uint64_t> start = Numbers(database.db);
	WriteOptions options;
	options.sync = how.sync;
	std::vector<std::thread> threads;
	std::atomic<uint64_t> written[kThreads];
	for (int thread = 0; thread < kThreads; thread++)
		written[thread] = start[thread];
	for (int thread = 0; thread < kThreads; thread++)
		threads.emplace_back([&, thread] {
			for (uint64_t number = start[thread] + 1;; number++) {
				OK(database.db->Put(options, KeyOf(thread, number), ValueOf(thread, number)));
				written[thread] = number;
				// By hand: acknowledged is what a flush came behind.
				if (!how.manual)
					acknowledged[thread] = number;
				else if (thread == 0 && number % 20 == 0) {
					uint64_t all[kThreads];
					for (int at = 0; at < kThreads; at++)
						all[at] = written[at];
					OK(database.db->FlushWAL(number % 40 == 0));
					for (int at = 0; at < kThreads; at++)
						acknowledged[at] = all[at];
				}
			}
		});
	for (auto &thread : threads)
		thread.join();
}

void Verify(const std::string &dir, const How &how)
{
	Database database(dir, how);
	database.Open();
	const std::vector<uint64_t> found = Numbers(database.db);
	for (int thread = 0; thread < kThreads; thread++) {
		if (found[thread] < acknowledged[thread])
			std::cerr << how.name << ": thread " << thread << ": " << found[thread] << " of " << acknowledged[thread] << std::endl;
		CHECK(found[thread] >= acknowledged[thread]);
	}
	// None of it is in a file.
	std::vector<std::string> names;
	OK(Env::Default()->GetChildren(dir, &names));
	bool log = false;
	for (auto &name : names) {
		CHECK(name.size() < 4 || name.compare(name.size() - 4, 4, ".log") != 0);
		log = log || name == "wal.cairn";
	}
	CHECK(log);
}

uint64_t Acknowledged()
{
	uint64_t sum = 0;
	for (int thread = 0; thread < kThreads; thread++)
		sum += acknowledged[thread];
	return sum;
}

void Killed(const std::string &root, const How &how, int kills, std::function<void(const std::string &)> then = {})
{
	const std::string dir = root + "/killed";
	std::mt19937 random(static_cast<unsigned>(kills));
	for (int thread = 0; thread < kThreads; thread++)
		acknowledged[thread] = 0;
	for (int number = 0; number < kills; number++) {
		const uint64_t enough = Acknowledged() + random() % 3000;
		const pid_t writer = Start([&] { Write(dir, how); });
		int status;
		do {
			CHECK(waitpid(writer, &status, WNOHANG) == 0);
			usleep(500);
		} while (Acknowledged() < enough);
		CHECK(kill(writer, SIGKILL) == 0 && waitpid(writer, &status, 0) == writer && WIFSIGNALED(status));
		// Opening it is cut short now and then, too.
		if (number % 3 == 2) {
			const pid_t verifier = Start([&] { Verify(dir, how); });
			usleep(random() % 20000);
			kill(verifier, SIGKILL);
			CHECK(waitpid(verifier, &status, 0) == verifier && (WIFSIGNALED(status) || status == 0));
		}
		Run([&] { Verify(dir, how); });
	}
	std::cout << how.name << ": " << Acknowledged() << " writes acknowledged, " << kills << " kills" << std::endl;
	if (then)
		Run([&] { then(dir); });
	Run([&] {
		Database database(dir, how);
		OK(DestroyDB(dir, database.options));
		CHECK(database.env->FileExists(dir).IsNotFound());
	});
}

// Of what was never synced a part is torn: what is before it is there, and nothing behind it. If that was synced, it is missed.
void Torn(const std::string &root)
{
	const std::string dir = root + "/torn";
	How how = kWays[3];
	for (uint64_t torn : {5, 20, 37, 50}) {
		const pid_t writer = Start([&] {
			Database database(dir, how);
			database.Open();
			WriteOptions synced;
			synced.sync = true;
			for (uint64_t number = 1; number <= 50; number++)
				OK(database.db->Put(number == 10 ? synced : WriteOptions(), KeyOf(0, number), ValueOf(0, number)));
			kill(getpid(), SIGKILL);
		});
		int status;
		CHECK(waitpid(writer, &status, 0) == writer && WIFSIGNALED(status));
		{
			std::fstream log(dir + "/wal.cairn", std::ios::in | std::ios::out | std::ios::binary);
			std::string bytes((std::istreambuf_iterator<char>(log)), std::istreambuf_iterator<char>());
			const size_t at = bytes.find(KeyOf(0, torn));
			CHECK(at != std::string::npos);
			log.seekp(static_cast<std::streamoff>(at));
			log.put('!');
			CHECK(log.good());
		}
		Run([&] {
			Database database(dir, how);
			if (torn > 10) {
				database.Open();
				CHECK(Numbers(database.db)[0] == torn - 1);
				database.Close();
			} else {
				CHECK(DB::Open(database.options, dir, &database.db).IsCorruption());
				OK(Env::Default()->DeleteFile(dir + "/wal.cairn"));
			}
			OK(DestroyDB(dir, database.options));
		});
	}
}

std::vector<std::string> Logs(Env *env, const std::string &dir)
{
	std::vector<std::string> names, logs;
	OK(env->GetChildren(dir, &names));
	for (auto &name : names)
		if (name.size() > 4 && name.compare(name.size() - 4, 4, ".log") == 0)
			logs.push_back(name);
	return logs;
}

std::string Content(FileSystem *files, const std::string &path)
{
	uint64_t size;
	std::unique_ptr<FSSequentialFile> file;
	OK(files->GetFileSize(path, IOOptions(), &size, nullptr));
	OK(files->NewSequentialFile(path, FileOptions(), &file, nullptr));
	std::string scratch(size + 10, 0);
	Slice read;
	OK(file->Read(size + 10, IOOptions(), &read, &scratch[0], nullptr));
	CHECK(read.size() == size);
	return read.ToString();
}

void Put(FileSystem *files, const std::string &path, const std::string &bytes, bool more = false)
{
	std::unique_ptr<FSWritableFile> file;
	OK(more ? files->ReopenWritableFile(path, FileOptions(), &file, nullptr)
		: files->NewWritableFile(path, FileOptions(), &file, nullptr));
	const uint64_t before = file->GetFileSize(IOOptions(), nullptr);
	OK(file->Append(bytes, IOOptions(), nullptr));
	OK(file->Fsync(IOOptions(), nullptr));
	CHECK(file->GetFileSize(IOOptions(), nullptr) == before + bytes.size());
	OK(file->Truncate(before + bytes.size(), IOOptions(), nullptr));
	OK(file->Close(IOOptions(), nullptr));
}

// The file system by itself, closed and opened between all steps.
void Files(const std::string &root)
{
	const std::string dir = root + "/files", first = dir + "/000001.log", second = dir + "/000002.log", third = dir + "/000003.log";
	std::shared_ptr<FileSystem> files;
	const auto again = [&] { files = Database(dir).files; };
	const auto there = [&](const std::string &path) { return files->FileExists(path, IOOptions(), nullptr).ok(); };
	const std::string little = "a little", big(5 << 20, 'b');
	again();
	OK(files->CreateDir(dir, IOOptions(), nullptr));
	OK(files->CreateDir(dir + "/archive", IOOptions(), nullptr));
	CHECK(!there(first) && Logs(Database(dir).env.get(), dir).empty());
	CHECK(files->DeleteFile(first, IOOptions(), nullptr).IsPathNotFound());
	Put(files.get(), first, little);
	Put(files.get(), second, big);
	again();
	CHECK(Content(files.get(), first) == little && Content(files.get(), second) == big);
	Put(files.get(), first, little, true);
	again();
	CHECK(Content(files.get(), first) == little + little && Content(files.get(), second) == big);
	// The first one keeps the records of the second, which is gone all the same; then there is another one of its name.
	OK(files->DeleteFile(second, IOOptions(), nullptr));
	CHECK(!there(second));
	again();
	CHECK(there(first) && !there(second));
	Put(files.get(), second, little);
	again();
	CHECK(Content(files.get(), second) == little);
	Put(files.get(), second, "");
	again();
	CHECK(Content(files.get(), second).empty());
	// In the archive.
	OK(files->RenameFile(first, dir + "/archive/000001.log", IOOptions(), nullptr));
	again();
	CHECK(!there(first) && Content(files.get(), dir + "/archive/000001.log") == little + little);
	// In place of another one.
	std::unique_ptr<FSWritableFile> file;
	OK(files->ReuseWritableFile(third, second, FileOptions(), &file, nullptr));
	OK(file->Append("third", IOOptions(), nullptr));
	file.reset();
	again();
	CHECK(!there(second) && Content(files.get(), third) == "third");
	std::vector<FileAttributes> attributes;
	OK(files->GetChildrenFileAttributes(dir, IOOptions(), &attributes, nullptr));
	CHECK(attributes.size() == 2 && attributes[1].name == "000003.log" && attributes[1].size_bytes == 5);
	// A directory takes its log along, unless it is in use.
	OK(files->NewWritableFile(third, FileOptions(), &file, nullptr));
	CHECK(files->RenameFile(dir, root + "/elsewhere", IOOptions(), nullptr).IsBusy());
	OK(file->Append("moved", IOOptions(), nullptr));
	file.reset();
	OK(files->RenameFile(dir, root + "/elsewhere", IOOptions(), nullptr));
	CHECK(!there(third) && Content(files.get(), root + "//elsewhere/000003.log") == "moved");
	// Other names are other files.
	for (const char *name : {"/12.log", "/x00012.log", "/0000012.log", "/000012.sst"}) {
		Put(files.get(), root + "/elsewhere" + name, little);
		OK(FileSystem::Default()->DeleteFile(root + "/elsewhere" + name, IOOptions(), nullptr));
	}
	// What is no log of ours is not taken for one.
	OK(files->DeleteFile(root + "/elsewhere/000003.log", IOOptions(), nullptr));
	OK(files->DeleteFile(root + "/elsewhere/archive/000001.log", IOOptions(), nullptr));
	OK(files->DeleteDir(root + "/elsewhere/archive", IOOptions(), nullptr));
	OK(files->DeleteDir(root + "/elsewhere", IOOptions(), nullptr));
	cairn_log *other;
	CHECK(cairn_log_create((root + "/wal.cairn").c_str(), nullptr, &other) == CAIRN_OK);
	CHECK(cairn_log_append(other, "something else that is a record", 31, nullptr) == CAIRN_OK);
	CHECK(cairn_log_close(other) == CAIRN_OK);
	CHECK(files->NewWritableFile(root + "/000001.log", FileOptions(), &file, nullptr).IsCorruption());
	OK(FileSystem::Default()->DeleteFile(root + "/wal.cairn", IOOptions(), nullptr));
}

// Readers of logs that are being written, the archive, checkpoints.
void Others(const std::string &root)
{
	const std::string dir = root + "/others", copy = root + "/copy";
	Database database(dir);
	database.options.WAL_ttl_seconds = 3600;
	database.Open();
	for (uint64_t number = 1; number <= 1000; number++) {
		OK(database.db->Put(WriteOptions(), KeyOf(0, number), ValueOf(0, number)));
		if (number == 500)
			OK(database.db->Flush(FlushOptions()));
	}
	// The first one is archived, and everything is read through both, though none of it was synced.
	const std::vector<std::string> archived = Logs(database.env.get(), dir + "/archive"), live = Logs(database.env.get(), dir + "/");
	CHECK(archived.size() == 1 && live.size() == 1);
	std::unique_ptr<TransactionLogIterator> updates;
	OK(database.db->GetUpdatesSince(1, &updates));
	uint64_t count = 0;
	for (; updates->Valid(); updates->Next())
		count += static_cast<uint64_t>(updates->GetBatch().writeBatchPtr->Count());
	CHECK(count == 1000);
	// Later there is more.
	OK(database.db->Put(WriteOptions(), KeyOf(0, 1001), ValueOf(0, 1001)));
	updates->Next();
	CHECK(updates->Valid() && updates->GetBatch().sequence == 1001);
	updates.reset();
	VectorLogPtr logs;
	OK(database.db->GetSortedWalFiles(logs));
	CHECK(logs.size() == 2 && logs[0]->Type() == kArchivedLogFile && logs[1]->SizeFileBytes() > 0);

	// Read at random or in sequence, a log is the same; and it is not moved elsewhere, linked or cut.
	const std::string path = dir + "//" + live[0];
	uint64_t size;
	OK(database.env->GetFileSize(path, &size));
	CHECK(size == logs[1]->SizeFileBytes());
	OK(database.env->GetFileModificationTime(path, &size));
	std::unique_ptr<RandomAccessFile> random;
	std::unique_ptr<SequentialFile> sequence;
	OK(database.env->NewRandomAccessFile(path, &random, EnvOptions()));
	OK(database.env->NewSequentialFile(path, &sequence, EnvOptions()));
	OK(sequence->Skip(1000));
	std::string scratch[2] = {std::string(5000, 0), std::string(5000, 0)};
	Slice read[2];
	OK(random->Read(1000, 5000, &read[0], &scratch[0][0]));
	OK(sequence->Read(5000, &read[1], &scratch[1][0]));
	CHECK(read[0].size() == 5000 && read[0] == read[1]);
	OK(sequence->Skip(1 << 30));
	OK(sequence->Read(10, &read[1], &scratch[1][0]));
	CHECK(read[1].empty());
	CHECK(database.env->RenameFile(path, root + "/000077.log").IsNotSupported());
	CHECK(database.env->LinkFile(path, root + "/000077.log").IsNotSupported());
	CHECK(database.env->Truncate(path, 10).IsNotSupported());
	random.reset();
	sequence.reset();

	Checkpoint *checkpoint;
	OK(Checkpoint::Create(database.db, &checkpoint));
	OK(checkpoint->CreateCheckpoint(copy, 1 << 30));
	delete checkpoint;
	{
		Database second(copy);
		second.Open();
		CHECK(Numbers(second.db)[0] == 1001);
		second.Close();
		OK(DestroyDB(copy, second.options));
	}
	database.Close();
	database.Open();
	CHECK(Numbers(database.db)[0] == 1001);
	database.Close();
	OK(DestroyDB(dir, database.options));
	CHECK(database.env->FileExists(dir).IsNotFound());
}

// From logs in files to a Cairn log, and back.
void ThereAndBack(const std::string &root)
{
	const std::string dir = root + "/there";
	{
		Database plain(dir, kWays[0], false);
		plain.Open();
		for (uint64_t number = 1; number <= 100; number++)
			OK(plain.db->Put(WriteOptions(), KeyOf(1, number), ValueOf(1, number)));
	}
	{
		Database ours(dir);
		ours.Open();
		CHECK(Numbers(ours.db)[1] == 100 && Logs(Env::Default(), dir).empty());
		for (uint64_t number = 101; number <= 200; number++)
			OK(ours.db->Put(WriteOptions(), KeyOf(1, number), ValueOf(1, number)));
		ours.Close();
		ours.Open();
		CHECK(Numbers(ours.db)[1] == 200);
		OK(ours.db->Flush(FlushOptions()));
	}
	Database plain(dir, kWays[0], false);
	plain.options.track_and_verify_wals_in_manifest = false;
	plain.Open();
	CHECK(Numbers(plain.db)[1] == 200);
	plain.Close();
	OK(DestroyDB(dir, plain.options));
	OK(DestroyDB(dir, Database(dir).options));
}

// Many logs, one after the other, go where earlier ones were: the log does not grow.
void Again(const std::string &root)
{
	const std::string dir = root + "/again";
	How how = kWays[0];
	how.log_bytes = 4 << 20;
	Database database(dir, how);
	database.Open();
	cairn_log_counts before, after;
	OK(GetCairnWalCounts(database.files.get(), dir, &before));
	const std::string value(1000, 'v');
	for (int number = 0; number < 60000; number++)
		OK(database.db->Put(WriteOptions(), KeyOf(0, static_cast<uint64_t>(number % 1000)), value));
	OK(GetCairnWalCounts(database.files.get(), dir, &after));
	CHECK(after.growths == 0 && after.capacity == before.capacity && after.reclaims > 10);
	// A barrier for each write that is synced.
	WriteOptions synced;
	synced.sync = true;
	OK(database.db->Put(synced, KeyOf(0, 1), value));
	OK(GetCairnWalCounts(database.files.get(), dir, &before));
	OK(database.db->Put(synced, KeyOf(0, 1), value));
	OK(GetCairnWalCounts(database.files.get(), dir, &after));
	CHECK(after.forced > before.forced && after.barriers > before.barriers);
	CHECK(GetCairnWalCounts(database.files.get(), root + "/none", &after).IsNotFound());
	CHECK(GetCairnWalCounts(FileSystem::Default().get(), dir, &after).IsInvalidArgument());
	database.Close();
	OK(DestroyDB(dir, database.options));
}

// On two machines, killed and opened again; not without the other, nor for two databases.
void Copies(const std::string &root, int kills, const char *address)
{
	How how = kWays[0];
	how.name = "sync, with a copy";
	how.address = address;
	Killed(root, how, kills, [&](const std::string &dir) {
		Database alone(dir);
		DB *db = nullptr;
		CHECK(!DB::Open(alone.options, dir, &db).ok());
		how.address = "127.0.0.1:1";
		Database unreached(dir, how);
		CHECK(!DB::Open(unreached.options, dir, &db).ok());
		how.address = address;
		Database both(dir, how);
		both.Open();
		CHECK(DB::Open(both.options, root + "/second", &db).IsNotSupported());
		both.Close();
	});
}

// A log with a copy does not grow. One that is full of what memtables have is emptied by the next open, which flushes them, and makes a file before it deletes any. `DB::Resume()` is not
// enough: the file that refused a write takes no more.
void FullCopies(const std::string &root, const char *address)
{
	const std::string dir = root + "/full";
	How how = kWays[0];
	how.log_bytes = 8 << 20;
	how.address = address;
	Database database(dir, how);
	database.options.write_buffer_size = 64 << 20;
	database.Open();
	const std::string value(10000, 'v');
	uint64_t count = 0;
	Status s;
	while ((s = database.db->Put(WriteOptions(), KeyOf(0, count), value)).ok())
		CHECK(++count < 10000);
	CHECK(s.IsNoSpace() && s.ToString().find("flush") != std::string::npos);
	for (int round = 0; round < 3; round++) {
		database.Close();
		database.Open();
		std::string found;
		for (uint64_t number = 0; number < count; number++)
			OK(database.db->Get(ReadOptions(), KeyOf(0, number), &found));
		// Opening has flushed it: there is room, and it is filled again.
		uint64_t more = 0;
		while (database.db->Put(WriteOptions(), KeyOf(0, more), value).ok())
			CHECK(++more < 10000);
		CHECK(more > 100);
	}
	database.Close();
	OK(DestroyDB(dir, database.options));
}

}

int main(int argc, char **argv)
{
	if (argc < 2) {
		std::cerr << "usage: wal_test DIRECTORY [KILLS [ADDRESS [ANOTHER]]]" << std::endl;
		return 2;
	}
	const std::string root = argv[1];
	const int kills = argc > 2 ? atoi(argv[2]) : 6;
	void *shared = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	acknowledged = static_cast<std::atomic<uint64_t> *>(shared);
	for (const How &how : kWays)
		Killed(root, how, kills);
	if (argc > 3)
		Copies(root, kills, argv[3]);
	if (argc > 4)
		Run([&] { FullCopies(root, argv[4]); });
	Torn(root);
	Run([&] { Files(root); });
	Run([&] { Others(root); });
	Run([&] { ThereAndBack(root); });
	Run([&] { Again(root); });
	return 0;
}
