"""What all contestants compute."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Setting:
    image_size: int = 299
    batch: int = 8
    """Samples of one forward and backward pass."""
    micro_steps: int = 1
    """Such passes in one update."""
    width: float = 1.0
    classes: int = 1000

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Setting":
        return cls(**json.loads(text))

    def of_everybody(self, contestant: object) -> "Setting":
        """For `take_turns`."""
        return self

    def __str__(self) -> str:
        steps = f" × {self.micro_steps}" if self.micro_steps > 1 else ""
        width = f", width {self.width:g}" if self.width != 1.0 else ""
        return f"{self.image_size} px, batch {self.batch}{steps}{width}"
