import json
from types import SimpleNamespace

from distxcept.training.bad_images import BadImages
from distxcept.training.events import Observer

OTHER_RANK = [[7, "b.jpg", "cut short"], [9, "c.jpg", "empty"]]


class Heard(Observer):
    def __init__(self):
        self.lines: list[str] = []

    def bad_image(self, index, path, reason):
        self.lines.append(path)

    def happened(self, kind, message, **details):
        self.lines.append(f"{kind} {details['count']}: {message}")


def test_each_image_is_told_once_and_each_report_ends_with_one_event(tmp_path):
    engine = SimpleNamespace(exchange=lambda message: [message, json.dumps(OTHER_RANK).encode()])
    training = SimpleNamespace(
        engine=engine, config=SimpleNamespace(data=None), plan=SimpleNamespace(samples=10), reading=None
    )
    heard = Heard()
    bad_images = BadImages(training, tmp_path, heard)
    bad_images.found(3, "a.jpg", "no image")
    bad_images.report()
    assert heard.lines[:3] == ["a.jpg", "b.jpg", "c.jpg"]
    (event,) = heard.lines[3:]
    assert event.startswith("bad_images 3: 3 images could not be read")
    assert f"{tmp_path / 'bad_images.jsonl'} names them: mend or remove them" in event
    bad_images.found(3, "a.jpg", "no image")
    bad_images.report()
    assert heard.lines[4:] == [], "nothing new, nothing told"
