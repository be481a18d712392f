"""Updates CURL's SAC on command; `benchmarks.peers` starts this program.

    PYTHON benchmarks/control_peer_process.py DIRECTORY BATCH_SIZE

PYTHON has PyTorch; it needs nothing of this project, nor gym and scikit-image, of which the code
uses little. DIRECTORY holds `curl_sac.py`, `encoder.py` and `utils.py` as MishaLaskin/curl has
them. The replay is filled with noise. Each line of standard input is a number of updates to make;
the answer is the seconds that they took. The first answer, "ready", comes after the first updates.
"""

import pathlib
import sys
import types

import numpy as np

FRAMES, FILLED = (9, 100, 100), 1000  # pixels of a stack; transitions in the replay
# The script of the repository for cartpole_swingup; what it leaves out has these defaults there.
SETTINGS = {
    "hidden_dim": 1024, "discount": 0.99, "init_temperature": 0.1, "alpha_lr": 1e-4,
    "alpha_beta": 0.5, "actor_lr": 1e-3, "actor_beta": 0.9, "actor_log_std_min": -10,
    "actor_log_std_max": 2, "actor_update_freq": 2, "critic_lr": 1e-3, "critic_beta": 0.9,
    "critic_tau": 0.01, "critic_target_update_freq": 2, "encoder_type": "pixel",
    "encoder_feature_dim": 50, "encoder_lr": 1e-3, "encoder_tau": 0.05, "num_layers": 4,
    "num_filters": 32, "log_interval": 10**9, "detach_encoder": False, "curl_latent_dim": 128,
}  # fmt: skip
WARM_UPDATES = 3  # before the clock starts


class Logger:
    """Keeps nothing."""

    def __getattr__(self, name):
        """Any method, which does nothing."""
        return lambda *arguments, **named: None


def stand_in_modules() -> None:
    """What the code imports of gym and scikit-image."""
    gym, skimage = types.ModuleType("gym"), types.ModuleType("skimage")
    gym.Wrapper = object
    shape = types.ModuleType("skimage.util.shape")
    shape.view_as_windows = np.lib.stride_tricks.sliding_window_view
    sys.modules["gym"], sys.modules["skimage"] = gym, skimage
    sys.modules["skimage.util"] = types.ModuleType("skimage.util")
    sys.modules["skimage.util.shape"] = shape


def updates(directory: pathlib.Path, batch_size: int):
    """Updates forever; yields after each."""
    stand_in_modules()
    sys.path.insert(0, str(directory))
    import torch
    import utils
    from curl_sac import CurlSacAgent

    utils.set_seed_everywhere(0)
    device = torch.device("cpu")
    agent = CurlSacAgent(obs_shape=(9, 84, 84), action_shape=(1,), device=device, **SETTINGS)
    replay = utils.ReplayBuffer(
        obs_shape=FRAMES, action_shape=(1,), capacity=FILLED, batch_size=batch_size,
        device=device, image_size=84,
    )  # fmt: skip
    random = np.random.default_rng(0)
    for _ in range(FILLED):
        pixels = random.integers(0, 256, (2, *FRAMES), np.uint8)
        replay.add(pixels[0], random.uniform(-1, 1, 1), random.uniform(), pixels[1], False)
    step = 1
    while True:
        agent.update(replay, Logger(), step)
        step += 1
        yield


def main() -> None:
    """Answers one line for each line read."""
    training = updates(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
    for _ in range(WARM_UPDATES):
        next(training)
    import peer_answers  # beside this script, which another Python runs

    peer_answers.answer(training)


if __name__ == "__main__":
    main()
