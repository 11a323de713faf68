"""What a run writes beside its snapshots, over several processes."""

import json

from run_folders import started

from distxcept.report.run_folder import RunFiles


def test_a_bad_image_is_listed_once_in_all_processes_of_a_run(tmp_path):
    for found in (["a.jpg", "b.jpg"], ["b.jpg", "c.jpg"]):
        files = RunFiles(tmp_path)
        files.started(started())
        for path in found:
            files.bad_image(1, path, "cut off")
        files.ended({})
    listed = (tmp_path / "bad_images.jsonl").read_text().splitlines()
    assert [json.loads(line)["path"] for line in listed] == ["a.jpg", "b.jpg", "c.jpg"]
