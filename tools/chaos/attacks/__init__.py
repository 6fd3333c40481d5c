"""All attacks by name, in the order in which they are laid on."""

from tools.chaos.attacks.bodies import BODIES
from tools.chaos.attacks.clients import CLIENTS
from tools.chaos.attacks.connections import CONNECTIONS
from tools.chaos.target import Attack

ATTACKS: dict[str, Attack] = {**BODIES, **CONNECTIONS, **CLIENTS}
