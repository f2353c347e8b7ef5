"""A sentence in each of several languages."""

TALK = {
    "en": "It is not what we have that makes us, but what we do with it, and for this there are many ways to be happy.",
    "de": "Das ist nicht das, was wir haben, und auch nicht, wie wir es zu nutzen wissen, sondern wer wir sind.",
    "fr": "Ce que nous avons est une chance pour qui ne la perd pas, et vous êtes dans les bras du vent avec elle.",
    "zh": "我们今天去学校的时候看见了一只很大的鸟。",
    "es": "Lo que tenemos es una suerte para quien no la pierde, y ustedes están en los brazos del viento con ella.",
    "nl": "Wat wij hebben is een kans voor wie die niet verliest, en jullie zijn met haar in de armen van de wind.",
    "cs": "To, co máme, je štěstí pro toho, kdo ho neztratí, a vy jste s ním v náručí větru.",
}
