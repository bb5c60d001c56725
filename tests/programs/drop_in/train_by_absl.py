import train
from absl import app


def main(argv):
    train.check()
    print("ran", __name__, *argv[1:])


if __name__ == "__main__":
    app.run(main)
