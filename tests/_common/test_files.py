import threading

from gossamer._common.files import replacing


def test_threads_that_write_one_file_do_not_meet(tmp_path):
    path, both = tmp_path / "file.txt", threading.Barrier(2, timeout=10)
    failed: list[BaseException] = []

    def write(text: str) -> None:
        try:
            with replacing(path) as temporary:
                temporary.write_text(text)
                both.wait()
                assert temporary.read_text() == text
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert path.read_text() in ("one", "two")
    assert list(tmp_path.iterdir()) == [path]
